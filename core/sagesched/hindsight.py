"""What requests waited in an engine that serves them first come, first served, and would have waited in our order.

What happened is read from their ends: the oldest that are there have the slots, so a request is served from the moment
at which it is among them. With the service times that this gives, the other order is played afterwards (replay.py).

It is an estimate: a request is taken to need as long in whatever company it runs, memory is no bound, and a request
that left before its turn is left out of both (docs/modes.md).
"""

from collections import deque
from typing import NamedTuple

from sagesched.replay import Replay
from sagesched.waiting import Rank

MAX_HELD = 20_000
"""Requests held; beyond it the estimate begins anew."""

_NO_RANK = Rank(0, 0.0, 0.0, "")


class Waits(NamedTuple):
    """How long one request waited, and how long it would have."""

    id: str
    """That of its rank."""
    waited_s: float
    would_have_waited_s: float

    @property
    def saved_s(self) -> float:
        """What the other order would have saved it; below 0 where it would have cost it."""
        return self.waited_s - self.would_have_waited_s


class _Ended(NamedTuple):
    id: str
    waited_s: float


class Hindsight:
    """See the module. `arrive` and `end` come in the order of time; `end` gives what has become known."""

    def __init__(self, slots: int, max_wait_s: float) -> None:
        self.slots = slots
        self._max_wait_s = max_wait_s
        self.forgotten = 0
        """Requests that were left out because too many were held."""
        self._begin()

    def _begin(self) -> None:
        self._replay = Replay(self.slots, self._max_wait_s)
        self._there: dict[int, float] = {}
        self._started: dict[int, float] = {}
        self._queue: deque[int] = deque()
        self._ended: dict[int, _Ended] = {}

    def __len__(self) -> int:
        return len(self._there) + len(self._ended)

    def arrive(self, key: int, now_s: float) -> None:
        """A request came."""
        if len(self) >= MAX_HELD:
            self.forgotten += len(self)
            self._begin()
        self._there[key] = now_s
        self._replay.arrive(key, now_s)
        self._queue.append(key)
        self._start(now_s)

    def end(self, key: int, now_s: float, rank: Rank | None) -> list[Waits]:
        """It ended, answered or not; `rank` is the one that it would have waited with, None leaves it out. Unknown keys
        are let pass."""
        arrival_s = self._there.pop(key, None)
        if arrival_s is None:
            return []
        start_s = self._started.pop(key, None)
        self._start(now_s)
        if start_s is None or rank is None:
            return self._known(key, None, _NO_RANK)
        self._ended[key] = _Ended(rank.id, start_s - arrival_s)
        return self._known(key, now_s - start_s, rank)

    def _start(self, now_s: float) -> None:
        """Those who came first have the slots."""
        while self._queue and len(self._started) < self.slots:
            key = self._queue.popleft()
            if key in self._there:
                self._started[key] = now_s

    def _known(self, key: int, service_s: float | None, rank: Rank) -> list[Waits]:
        played = self._replay.end(key, service_s, rank)
        return [Waits(*self._ended.pop(one.key), one.waited_s) for one in played]
