"""A queue before so many slots, played afterwards with service times that are known by then."""

import heapq
from collections import deque
from typing import NamedTuple

from sagesched.waiting import Rank, WaitingOrder


class Played(NamedTuple):
    """A request that has been played: how long it waited."""

    key: int
    waited_s: float


class _Job(NamedTuple):
    arrival_s: float
    service_s: float
    rank: Rank


class Replay:
    """Requests arrive in the order of time and end in any; each is played once all that came before it have ended.

    A request is taken to need as long in whatever company it runs, and memory is no bound.
    """

    def __init__(self, slots: int, max_wait_s: float) -> None:
        self._slots = slots
        self._to_come: deque[int] = deque()
        self._arrival_s: dict[int, float] = {}
        self._ended: dict[int, _Job | None] = {}
        self._order = WaitingOrder(max_wait_s)
        self._waiting: dict[str, tuple[int, _Job]] = {}
        self._ends: list[float] = []

    def __len__(self) -> int:
        return len(self._to_come) + len(self._waiting)

    def arrive(self, key: int, arrival_s: float) -> None:
        """A request came, not before the last one."""
        self._to_come.append(key)
        self._arrival_s[key] = arrival_s

    def end(self, key: int, service_s: float | None, rank: Rank) -> list[Played]:
        """It ended after running so long, None where it never ran and is left out; what can be played by now."""
        if key not in self._arrival_s:
            return []
        self._ended[key] = None if service_s is None else _Job(self._arrival_s[key], service_s, rank)
        played: list[Played] = []
        while self._to_come and self._to_come[0] in self._ended:
            key = self._to_come.popleft()
            arrival_s, job = self._arrival_s.pop(key), self._ended.pop(key)
            if job is not None:
                self._serve_until(arrival_s, played)
                rank = Rank(job.rank.priority, job.rank.key, arrival_s, f"{key:016d}")
                self._order.push(rank)
                self._waiting[rank.id] = key, job
                self._fill(arrival_s, played)
        if not self._to_come:
            self._serve_until(float("inf"), played)
        return played

    def _serve_until(self, until_s: float, played: list[Played]) -> None:
        while self._ends and self._ends[0] <= until_s:
            self._fill(heapq.heappop(self._ends), played)

    def _fill(self, now_s: float, played: list[Played]) -> None:
        while len(self._ends) < self._slots and (rank := self._order.peek(now_s)) is not None:
            self._order.remove(rank.id)
            key, job = self._waiting.pop(rank.id)
            heapq.heappush(self._ends, now_s + job.service_s)
            played.append(Played(key, now_s - job.arrival_s))
