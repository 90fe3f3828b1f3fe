"""The engine's waiting queue in the order of vLLM's two policies: first come first served, or by priority."""

import heapq
from typing import Literal, Protocol

from sagesched_sim.sequence import Sequence

SchedulingPolicy = Literal["fcfs", "priority"]


class Queue(Protocol):
    """Sequences that wait for a place, in whatever order."""

    def __len__(self) -> int: ...

    def append(self, sequence: Sequence) -> None:
        """A new sequence joins."""

    def put_back(self, sequence: Sequence) -> None:
        """A preempted sequence returns."""

    def peek(self) -> Sequence | None:
        """Who goes next; None when nobody waits, or nobody may start now."""

    def pop(self) -> None:
        """Takes out the one that `peek` returned."""

    def forget(self, sequence: Sequence) -> None:
        """A waiting sequence has ended (its flag is set); it no longer counts."""


class WaitingQueue:
    """Sequences that wait for a place. What was removed stays in the heap until it comes up, and is skipped there."""

    __slots__ = ("_by_priority", "_front", "_heap", "_live", "_next")

    def __init__(self, policy: SchedulingPolicy) -> None:
        self._by_priority = policy == "priority"
        self._heap: list[tuple[int, float, int, Sequence]] = []
        self._live = 0
        self._next = 0
        self._front = 0

    def __len__(self) -> int:
        return self._live

    def append(self, sequence: Sequence) -> None:
        """A new sequence joins."""
        self._next += 1
        self._push(sequence, self._next)

    def put_back(self, sequence: Sequence) -> None:
        """A preempted sequence returns: to the head under fcfs, to where its priority puts it under priority."""
        self._front -= 1
        self._push(sequence, self._front)

    def _push(self, sequence: Sequence, order: int) -> None:
        request = sequence.request
        key = (request.priority, request.arrival_s) if self._by_priority else (0, 0.0)
        heapq.heappush(self._heap, (*key, order, sequence))
        self._live += 1

    def peek(self) -> Sequence | None:
        """Who goes next; None when nobody waits."""
        while self._heap and self._heap[0][3].ended:
            heapq.heappop(self._heap)
        return self._heap[0][3] if self._heap else None

    def pop(self) -> None:
        """Takes out the one that `peek` returned."""
        heapq.heappop(self._heap)
        self._live -= 1

    def forget(self, sequence: Sequence) -> None:
        """One of the waiting sequences has ended (its flag is set); it no longer counts."""
        self._live -= 1
