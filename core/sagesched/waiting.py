"""What waits, in order. A rank is replaced, never changed in place, so the order stays total (docs/architecture.md)."""

import heapq
from collections.abc import Iterable
from typing import NamedTuple


class Rank(NamedTuple):
    """Who goes first: class, then the policy's key, then arrival, then id. Smaller first."""

    priority: int
    key: float
    arrival_s: float
    id: str


class WaitingOrder:
    """A heap of ranks with the starvation bound beside it. Push, replace, remove and peek cost O(log n) amortised.

    Replaced and removed entries stay in the heap until they surface or outnumber the live ones.
    """

    def __init__(self, max_wait_s: float) -> None:
        self.max_wait_s = max_wait_s
        self._heap: list[Rank] = []
        self._live: dict[str, Rank] = {}
        self._by_arrival: list[tuple[float, str]] = []

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._live

    def push(self, rank: Rank) -> None:
        """Add a request, or give it another rank."""
        if rank.id not in self._live:
            heapq.heappush(self._by_arrival, (rank.arrival_s, rank.id))
        self._live[rank.id] = rank
        heapq.heappush(self._heap, rank)
        if len(self._heap) > 2 * len(self._live) + 64:
            self._heap = list(self._live.values())
            heapq.heapify(self._heap)

    def push_all(self, ranks: Iterable[Rank]) -> None:
        """Give another rank to many that wait already; O(n)."""
        self._live.update((rank.id, rank) for rank in ranks)
        self._heap = list(self._live.values())
        heapq.heapify(self._heap)

    def remove(self, request_id: str) -> None:
        """Take a request out; raises KeyError when it is not there."""
        del self._live[request_id]
        if len(self._by_arrival) > 2 * len(self._live) + 64:
            self._by_arrival = [(rank.arrival_s, rank.id) for rank in self._live.values()]
            heapq.heapify(self._by_arrival)

    def rank(self, request_id: str) -> Rank:
        """The rank that a waiting request has."""
        return self._live[request_id]

    def oldest(self) -> Rank | None:
        """The request that has waited longest."""
        while self._by_arrival:
            arrival_s, request_id = self._by_arrival[0]
            rank = self._live.get(request_id)
            if rank is not None and rank.arrival_s == arrival_s:
                return rank
            heapq.heappop(self._by_arrival)
        return None

    def starving(self, now_s: float) -> Rank | None:
        """The oldest request, if it has waited longer than the bound."""
        oldest = self.oldest()
        return oldest if oldest is not None and now_s - oldest.arrival_s > self.max_wait_s else None

    def peek(self, now_s: float) -> Rank | None:
        """Who goes next: a request beyond the starvation bound, else the smallest rank."""
        return self.starving(now_s) or self.smallest()

    def ahead(self, rank: Rank) -> int:
        """How many waiting requests have a smaller rank; O(n)."""
        return sum(other < rank for other in self._live.values())

    def ids(self) -> Iterable[str]:
        """Who waits, in no order."""
        return self._live.keys()

    def ranks(self) -> list[Rank]:
        """Every live rank, smallest first."""
        return sorted(self._live.values())

    def smallest(self) -> Rank | None:
        """The smallest rank."""
        while self._heap:
            rank = self._heap[0]
            if self._live.get(rank.id) is rank:
                return rank
            heapq.heappop(self._heap)
        return None
