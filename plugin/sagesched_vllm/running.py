"""What runs: who is due to be looked at, what all of it is expected to hold, and its order, each kept as it changes.

A step costs what has changed in it, and nothing for the rest.
"""

import math
from bisect import insort
from collections import defaultdict

from sagesched.waiting import Rank
from sagesched_vllm.arrivals import EngineRequest
from sagesched_vllm.held import Held

FEW = 24
"""So many that have moved are put at their places one by one; of more the whole list is sorted."""


class Running:
    """See the module. `step_tokens`: the most that a request may generate in a step."""

    def __init__(self, step_tokens: int = 1) -> None:
        self.members: dict[str, Held] = {}
        self.end_tokens = 0.0
        """KV tokens that all are expected to have at their ends, together."""
        self.variance = 0.0
        """Of that, in token^2."""
        self.freed_tokens = 0.0
        """The same of all that ever left: how much room came free between two looks."""
        self._step_tokens = step_tokens
        self._step = 0
        self._due: defaultdict[int, list[Held]] = defaultdict(list)
        self._moved: dict[str, Held] = {}
        self._prefilling: dict[str, Held] = {}
        self._all_moved = False

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self.members

    def add(self, held: Held, bucket_tokens: int) -> None:
        """It runs from now on."""
        self.members[held.id] = held
        self._moved[held.id] = self._prefilling[held.id] = held
        self.count(held)
        self.set_due(held, bucket_tokens)

    def remove(self, request_id: str) -> None:
        """It runs no longer; of one that did not, nothing."""
        held = self.members.pop(request_id, None)
        if held is None:
            return
        self._moved.pop(request_id, None)
        self._prefilling.pop(request_id, None)
        self.freed_tokens += held.counted[0]
        self._add_to_sums(held, (0.0, 0.0))

    def count(self, held: Held) -> None:
        """It was predicted anew."""
        if held.id in self.members:
            self._add_to_sums(held, (held.end_tokens(), held.spread_tokens**2))

    def moved(self, held: Held) -> None:
        """It has another rank."""
        if held.id in self.members:
            self._moved[held.id] = held

    def all_moved(self) -> None:
        """All have other ranks."""
        self._all_moved = True

    def set_due(self, held: Held, bucket_tokens: int) -> None:
        """It is due at its next bucket boundary, or where it outlives its prediction."""
        generated = held.request.num_output_tokens
        held.due_tokens = (generated // bucket_tokens + 1) * bucket_tokens
        self._look_later(held)

    def due(self) -> list[Held]:
        """A step begins: those that have crossed a boundary or outlived their prediction."""
        self._step += 1
        found = []
        for held in self._due.pop(self._step, ()):
            if self.members.get(held.id) is not held or held.due_step != self._step:
                continue  # it left, or is looked at in another step
            if held.request.num_output_tokens >= min(held.due_tokens, held.expected_tokens):
                found.append(held)
            else:
                self._look_later(held)
        return found

    def worst_rank(self) -> Rank | None:
        """The largest rank of those that run; None where nobody does."""
        return max((held.ticket.rank for held in self.members.values()), default=None)

    def sort(self, running: list[EngineRequest]) -> None:
        """The best first, so that the engine's own eviction takes the worst. Those whose prompt is still computed go
        last: a chunk of prompt before a running request's next token could leave none of the step for it."""
        for held in [held for held in self._prefilling.values() if not held.is_prefilling()]:
            del self._prefilling[held.id]
            self._moved[held.id] = held
        if self._all_moved or len(self._moved) > FEW:
            running.sort(key=self._place)
        elif self._moved:
            moved = [held.request for held in self._moved.values()]
            for request in moved:
                running.remove(request)
            for request in moved:
                insort(running, request, key=self._place)
        self._moved.clear()
        self._all_moved = False

    def _place(self, request: EngineRequest) -> tuple[bool, Rank]:
        request_id = request.request_id
        return request_id in self._prefilling, self.members[request_id].ticket.rank

    def _look_later(self, held: Held) -> None:
        gap = min(held.due_tokens, math.ceil(held.expected_tokens)) - held.request.num_output_tokens
        held.due_step = self._step + max(1, gap // self._step_tokens)
        self._due[held.due_step].append(held)

    def _add_to_sums(self, held: Held, counted: tuple[float, float]) -> None:
        self.end_tokens += counted[0] - held.counted[0]
        self.variance += counted[1] - held.counted[1]
        held.counted = counted
        if not self.members:  # what rounding left
            self.end_tokens = self.variance = 0.0
