"""How requests end, and the last that did, kept to be explained. No prompt text."""

from collections import OrderedDict
from typing import Literal, NamedTuple

from sagesched.request import Outcome
from sagesched.scoreboard import Finished
from sagesched.ticket import Ticket

KEPT = 1000

How = Literal["answered", "unmeasured", "engine-error", "left"]


class Ended(NamedTuple):
    """How a request ended, for those who count."""

    how: How
    outcome: Outcome | None
    """What history learnt; None where it learnt nothing of a whole answer."""
    finished: Finished | None


class Record(NamedTuple):
    """How one request ended."""

    ticket: Ticket
    how: str
    output_tokens: int | None
    """Of one choice; None where nothing is known of it."""
    waited_s: float
    total_s: float


class Records:
    """The last `KEPT` of them, by id."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._by_id: OrderedDict[str, Record] = OrderedDict()

    def __len__(self) -> int:
        return len(self._by_id)

    def add(self, record: Record) -> None:
        """Remember it and forget the oldest."""
        request_id = record.ticket.request.id
        self._by_id.pop(request_id, None)
        self._by_id[request_id] = record
        if len(self._by_id) > self._kept:
            self._by_id.popitem(last=False)

    def get(self, request_id: str) -> Record | None:
        """The record, None when it is not or no longer known."""
        return self._by_id.get(request_id)
