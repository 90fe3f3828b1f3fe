"""May whoever goes next start now? The predicted peak of KV cache use beside half a standard deviation of what is to
come, as in the sidecar's gate (core's kv.py).

A refusal stands until as much has left as was missing, or some steps have gone by.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sagesched.kv import predicted_peak_tokens
from sagesched_vllm.arrivals import EngineRequest
from sagesched_vllm.held import Held
from sagesched_vllm.order import Order

PATIENCE_STEPS = 16
"""A refusal is looked at again after so many steps: predictions change too."""


SPREADS_KEPT = 0.5
"""Standard deviations of all KV tokens to come that stay free, as in the sidecar's gate, where it was measured."""


class Capacity(NamedTuple):
    """What the engine has."""

    slots: int
    kv_tokens: int | None
    """None where blocks of several kinds make up the cache: then its size in tokens says little."""
    block_tokens: int


class Room:
    """See the module. `used_tokens` gives the KV tokens that are taken now, a prefix that several hold counted once."""

    def __init__(self, order: Order, capacity: Capacity, used_tokens: Callable[[], int]) -> None:
        self._order = order
        self.capacity = capacity
        self._used_tokens = used_tokens
        self._step = 0
        self._refused = _Refusal("", 0.0, 0)
        self.held_back = False
        """Whether somebody was refused in this step."""

    def begin(self) -> None:
        """A step begins."""
        self.held_back = False
        self._step += 1

    def open_for(self, request: EngineRequest) -> bool:
        """Whether it may start. Without a free slot the engine itself says no."""
        running = self._order.running
        if not running or len(running) >= self.capacity.slots or self.kv_tokens() is None:
            return True
        candidate = self._order.held(request.request_id)
        if candidate is None:
            return True
        refused = self._refused
        stands = refused.request_id == candidate.id and running.freed_tokens < refused.until_freed_tokens
        if not (stands and self._step < refused.until_step):
            missing = self.missing_tokens(candidate)
            if missing <= 0:
                return True
            self._refused = _Refusal(candidate.id, running.freed_tokens + missing, self._step + PATIENCE_STEPS)
        self.held_back = True
        return False

    def kv_tokens(self) -> float | None:
        """KV tokens that predictions may fill; None where that is not known."""
        engine = self._order.ranking.settings.engine
        kv_tokens = engine.kv_tokens or self.capacity.kv_tokens
        return None if kv_tokens is None else kv_tokens * (1 - engine.kv_reserve)

    def missing_tokens(self, candidate: Held, *, without: Sequence[Held] = ()) -> float:
        """KV tokens by which the predicted peak with it would be too large, without some that run; 0 or less where it
        fits. One that would run alone always does."""
        room_tokens, running = self.kv_tokens(), self._order.running
        if room_tokens is None or len(running) <= len(without):
            return 0.0
        half = self.capacity.block_tokens / 2
        end_tokens = running.end_tokens + candidate.end_tokens() + half * (len(running) + 1)
        variance = running.variance + candidate.spread_tokens**2
        for held in without:
            end_tokens -= held.counted[0] + half
            variance -= held.counted[1]
        room_tokens -= SPREADS_KEPT * math.sqrt(max(0.0, variance))
        if end_tokens <= room_tokens:
            return end_tokens - room_tokens
        return self._peak_tokens(candidate, without) - room_tokens

    def _peak_tokens(self, candidate: Held, without: Sequence[Held]) -> float:
        """The predicted peak, half of each request's last block being empty; a prefix that several hold counts once."""
        places = [held for held in self._order.running.members.values() if held not in without] + [candidate]
        half = self.capacity.block_tokens / 2
        held_tokens = [held.request.num_tokens + half for held in places]
        shared = max(0, self._computed_tokens() - self._used_tokens())
        return predicted_peak_tokens(held_tokens, [held.ahead_tokens() for held in places]) - shared

    def _computed_tokens(self) -> int:
        """Blocks of all that run, each request's counted by itself, in tokens."""
        size = self.capacity.block_tokens
        members = self._order.running.members.values()
        return sum(-(-held.request.num_computed_tokens // size) * size for held in members)


class _Refusal(NamedTuple):
    """Who was refused, and until when that stands."""

    request_id: str
    until_freed_tokens: float
    until_step: int
