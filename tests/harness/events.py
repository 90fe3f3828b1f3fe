"""Random engines and random lives: everything that clients and operators may do, at any step, from one seed."""

import random
from typing import Any

from engine_world import BLOCK_TOKENS, Shape, World
from hints import any_hint
from vllm.sampling_params import StructuredOutputsParams

REQUESTS = 28
GRAMMARS = ({"regex": "[a-c]{2,9}"}, {"json": '{"type": "integer"}'}, {"regex": "(never closed"})
"""The last one does not compile: its request ends with an error."""


def shape_of(seed: int, mode: str, scheduler: str | None, additional: Any = ()) -> Shape:
    """An engine of that seed: often too small for what will be asked of it."""
    rng = random.Random(f"shape {seed}")
    return Shape(
        mode=mode,
        scheduler=scheduler,
        additional=additional if rng.random() < 0.5 else (),
        blocks=rng.choice((10, 12, 16, 24, 48)),
        slots=rng.choice((1, 2, 3, 5, 8)),
        step_tokens=rng.choice((16, 24, 64, 200)),
        policy=rng.choice(("fcfs", "priority")),
        prefix_caching=rng.random() < 0.7,
        adapters=rng.choice((0, 0, 1, 2)),
    )


class Life:
    """What happens to one engine. `act` once a step, until `over`."""

    def __init__(self, world: World, seed: int) -> None:
        self._world, self._rng = world, random.Random(f"life {seed}")
        self._left = REQUESTS
        self._prefixes = [self._tokens(5 * BLOCK_TOKENS) for _ in range(3)]
        self._rate = self._rng.choice((0.15, 0.5, 2.0))
        self._leaving = self._rng.choice((0.0, 0.03, 0.15))

    @property
    def over(self) -> bool:
        """Whether everything was asked."""
        return self._left == 0

    def act(self) -> None:
        """Requests come, clients leave, the cache is reset."""
        rng = self._rng
        arriving = min(self._left, int(rng.random() < self._rate % 1) + int(self._rate))
        for _ in range(arriving):
            self._ask()
        if rng.random() < self._leaving:
            names = list(self._world.asked) or ["nobody"]
            self._world.abort(*rng.sample(names, min(len(names), rng.randint(1, 3))))
        if rng.random() < 0.01:
            self._world.scheduler.reset_prefix_cache(reset_running_requests=rng.random() < 0.5)

    def _tokens(self, count: int) -> list[int]:
        return [self._rng.randrange(256) for _ in range(count)]

    def _ask(self) -> None:
        rng, shape = self._rng, self._world.shape
        self._left -= 1
        most = min(512, shape.blocks * BLOCK_TOKENS)
        prefix = rng.choice(self._prefixes)[: rng.choice((0, 16, 33, 80))]
        prompt = (prefix + self._tokens(rng.randint(1, 60)))[: most // 2]
        more: dict[str, Any] = {}
        if rng.random() < 0.1:
            more["structured_outputs"] = StructuredOutputsParams(**rng.choice(GRAMMARS))
        self._world.add(
            f"r{REQUESTS - self._left}",
            prompt,
            min(rng.choice((1, 2, 9, 40, 120)), most - len(prompt) - 1),
            n=rng.choice((1, 1, 1, 1, 3)),
            adapter=rng.randint(0, 4) if shape.adapters else 0,
            priority=rng.randint(-1, 1),
            extra=any_hint(rng),
            may_end=rng.random() < 0.7,
            **more,
        )
