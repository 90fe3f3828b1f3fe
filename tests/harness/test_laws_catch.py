"""The laws can fail: each scheduler here does one wrong thing, and is caught."""

from pathlib import Path
from typing import Any

import pytest
from engine_world import Shape, World
from laws import after_step, drain
from vllm.v1.core.sched.scheduler import Scheduler


class Leaks(Scheduler):
    """One block of each request that ends is never given back."""

    def _free_request(self, request: Any, *arguments: Any, **named: Any) -> Any:
        self.kv_cache_manager.block_pool.get_new_blocks(1)
        return super()._free_request(request, *arguments, **named)


class Overwrites(Scheduler):
    """The cache of a running request is given to others while it runs."""

    def schedule(self, *arguments: Any, **named: Any) -> Any:
        """See the class."""
        if len(self.running) == 2 and self.running[0].num_output_tokens == 5:
            self.kv_cache_manager.free(self.running[0])
        return super().schedule(*arguments, **named)


class Skips(Scheduler):
    """A token is believed to be computed that is not."""

    def schedule(self, *arguments: Any, **named: Any) -> Any:
        """See the class."""
        for request in self.running:
            if request.num_output_tokens == 5:
                request.num_computed_tokens += 1
                request.append_output_token_ids(7)
        return super().schedule(*arguments, **named)


class Forgets(Scheduler):
    """A waiting request is dropped without a word."""

    def schedule(self, *arguments: Any, **named: Any) -> Any:
        """See the class."""
        if self.waiting:
            self.waiting.pop_request()
        return super().schedule(*arguments, **named)


class Starves(Scheduler):
    """The last two are never served."""

    def schedule(self, *arguments: Any, **named: Any) -> Any:
        """See the class."""
        if len(self.requests) <= 2:
            self.max_num_scheduled_tokens = 0
        return super().schedule(*arguments, **named)


class KeepsComputed(Scheduler):
    """A preempted request is believed to have its cache still."""

    def schedule(self, *arguments: Any, **named: Any) -> Any:
        """See the class."""
        if len(self.running) == 2 and self.running[1].num_output_tokens == 5:
            victim = self.running.pop()
            computed = victim.num_computed_tokens
            self._preempt_request(victim, 0.0)
            victim.num_computed_tokens = computed
        return super().schedule(*arguments, **named)


@pytest.mark.parametrize("wrong", [Leaks, Overwrites, Skips, Forgets, Starves, KeepsComputed])
def test_what_is_wrong_is_caught(model_folder: Path, wrong: Any) -> None:
    world = World(model_folder, Shape(scheduler=wrong, slots=2, prefix_caching=False))
    for i in range(4):
        world.add(f"r{i}", [i] * 20, 40, may_end=False)
    with pytest.raises((AssertionError, KeyError, ValueError)):
        drain(world, limit=500)


def test_and_the_engine_s_own_is_not(model_folder: Path) -> None:
    world = World(model_folder, Shape(slots=2, prefix_caching=False))
    for i in range(4):
        world.add(f"r{i}", [i] * 20, 40, may_end=False)
    after_step(world)
    drain(world, limit=500)
