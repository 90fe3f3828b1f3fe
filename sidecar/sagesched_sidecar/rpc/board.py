"""Tells those who wait where they stand: one pass over the queue for all of them, at most so often."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sagesched.ticket import Ticket

INTERVAL_S = 0.5
TOLD_PER_SECOND = 2000
"""Where so many wait that telling them all twice a second would be work, they are told more rarely."""


class Watch:
    """One request's place in the queue. `position`: 1 goes next; None until it is known."""

    def __init__(self) -> None:
        self.position: int | None = None
        self.predicted_tokens = 0.0
        self.changed = asyncio.Event()

    def see(self, position: int, ticket: Ticket) -> None:
        """Where it stands now."""
        predicted_tokens = ticket.prediction.distribution.mean()
        if (position, predicted_tokens) != (self.position, self.predicted_tokens):
            self.position, self.predicted_tokens = position, predicted_tokens
            self.changed.set()


class Board:
    """See the module. `waiting`: everything that waits, who goes next first."""

    def __init__(self, waiting: Callable[[], list[Ticket]], clock: Callable[[], float]) -> None:
        self._waiting = waiting
        self._clock = clock
        self._watches: dict[str, Watch] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due_s = 0.0

    def __len__(self) -> int:
        return len(self._watches)

    @contextmanager
    def watch(self, request_id: str) -> Iterator[Watch]:
        """Watch a request's place as long as the context lasts."""
        watch = self._watches[request_id] = Watch()
        self._set_timer()
        try:
            yield watch
        finally:
            del self._watches[request_id]

    def _set_timer(self) -> None:
        if self._timer is None and self._watches:
            delay_s = max(0.0, self._due_s - self._clock())
            self._timer = asyncio.get_running_loop().call_later(delay_s, self._tell)

    def _tell(self) -> None:
        self._timer = None
        if not self._watches:
            return
        waiting = self._waiting()
        for position, ticket in enumerate(waiting, start=1):
            watch = self._watches.get(ticket.request.id)
            if watch is not None:
                watch.see(position, ticket)
        self._due_s = self._clock() + max(INTERVAL_S, len(waiting) / TOLD_PER_SECOND)
        self._set_timer()
