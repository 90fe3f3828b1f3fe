"""Inside the engine's Python: two engines of the same size and traffic, vLLM's scheduler and ours, stepped in turn.

Prints one line of JSON for each setting. An output's length comes from a wide distribution that hints tell as 32 atoms,
as the sidecar does; the lengths themselves are known to the fake runner alone. Whatever ends is replaced at once, so
that as many run and wait in every step.
"""

import argparse
import gc
import itertools
import json
import math
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fake_executor
from chain_model import END
from engine_world import Shape, World
from fake_runner import FakeRunner
from model_folder import write_model_folder

from sagesched import hint

OURS = "sagesched_vllm.SageScheduler"
LONGEST = 280
"""Output tokens; with the prompt they fit into the fake model's context."""
MEANS = (12, 30, 60, 110, 180)
WARM_STEPS = 150


class Plain(FakeRunner):
    """Neither computes nor checks; a request ends when its own length is reached."""

    lengths: dict[str, int]

    def _forward(self, request: str, tokens: int) -> None:
        self.rows[request].computed += tokens

    def sampled(self, allowed: Any) -> dict[str, list[int]]:
        """A token for each whose prompt is computed."""
        output: dict[str, list[int]] = {}
        for request in self._scheduled:
            row = self.rows[request]
            output[request] = []
            if row.computed == len(row.tokens):
                generated = len(row.tokens) - row.prompt_tokens + 1
                token = END if generated >= LENGTHS[request] else 5
                row.tokens.append(token)
                output[request].append(token)
        return output


LENGTHS: dict[str, int] = {}
"""Output tokens by request."""


class Side:
    """One engine and the traffic that keeps it full."""

    def __init__(self, folder: Path, scheduler: str | None, mode: str, running: int, waiting: int) -> None:
        fake_executor.FakeRunner = Plain  # type: ignore[misc]
        shape = Shape(mode=mode, scheduler=scheduler, slots=running, blocks=running * 40, step_tokens=2048)
        self.world = World(folder, shape)
        self._held, self._rng, self._ids = running + waiting, random.Random(7), itertools.count()
        self.times: dict[str, list[int]] = {"schedule": [], "add_request": [], "update_from_output": []}
        for name, taken in self.times.items():
            setattr(self.world.scheduler, name, timed(getattr(self.world.scheduler, name), taken))
        self.fill()

    def fill(self) -> None:
        """As many requests as there should be."""
        while len(self.world.scheduler.requests) < self._held:
            name, rng = f"r{next(self._ids)}", self._rng
            mean = rng.choice(MEANS)
            LENGTHS[name] = min(LONGEST, 1 + int(rng.expovariate(1 / mean)))
            atoms = [max(1.0, round(-mean * math.log(1 - (i + 0.5) / 32), 1)) + i * 0.1 for i in range(32)]
            told = hint.Hint(lengths=tuple(atoms), weights=(1.0,) * 32, arrival_s=time.time())
            prompt = [rng.randrange(256) for _ in range(rng.randint(20, 200))]
            self.world.add(name, prompt, LONGEST, arrival=time.time(), extra=hint.encode(told))

    def step(self) -> None:
        """One step, and whoever ended replaced."""
        self.world.step()
        self.fill()
        self.world.asked = {n: a for n, a in self.world.asked.items() if a.ended is None}

    def counts(self) -> tuple[int, int]:
        """(running, waiting)."""
        running, waiting = self.world.scheduler.get_request_counts()
        return int(running), int(waiting)


def timed(call: Callable[..., Any], taken: list[int]) -> Callable[..., Any]:
    """The same call, its nanoseconds kept."""

    def wrapper(*arguments: Any, **named: Any) -> Any:
        began = time.perf_counter_ns()
        try:
            return call(*arguments, **named)
        finally:
            taken.append(time.perf_counter_ns() - began)

    return wrapper


def compare(folder: Path, mode: str, running: int, waiting: int, steps: int, schedulers: list[str | None]) -> Any:
    """Medians in microseconds a step, both sides stepped in turn, either first."""
    sides = [Side(folder, scheduler, mode, running, waiting) for scheduler in schedulers]
    for _ in range(WARM_STEPS):
        for side in sides:
            side.step()
    for side in sides:
        for taken in side.times.values():
            taken.clear()
    gc.collect()
    for step in range(steps):
        for side in sides if step % 2 else reversed(sides):
            side.step()
    return {
        "mode": mode,
        "running": running,
        "waiting": waiting,
        "steps": steps,
        "counts": [side.counts() for side in sides],
        "schedule_us": [round(statistics.median(side.times["schedule"]) / 1e3, 1) for side in sides],
        "schedule_p99_us": [round(sorted(side.times["schedule"])[-max(1, steps // 100)] / 1e3, 1) for side in sides],
        "arrival_us": [round(statistics.median(side.times["add_request"]) / 1e3, 1) for side in sides],
        "update_us": [round(statistics.median(side.times["update_from_output"]) / 1e3, 1) for side in sides],
    }


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--modes", nargs="+", default=["sync", "async, second runner"])
    parser.add_argument("--sizes", nargs="+", default=["64/500", "256/2000"])
    parser.add_argument("--stock-twice", action="store_true", help="vLLM's own on both sides: how well it measures")
    given = parser.parse_args()
    schedulers = [None, None if given.stock_twice else OURS]
    with tempfile.TemporaryDirectory() as temporary:
        folder = write_model_folder(Path(temporary))
        for mode in given.modes:
            for size in given.sizes:
                running, waiting = map(int, size.split("/"))
                print(json.dumps(compare(folder, mode, running, waiting, given.steps, schedulers)), flush=True)


if __name__ == "__main__":
    main()
