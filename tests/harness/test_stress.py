"""Two hundred engines and lives, the laws after every step: no block leaked, no token lost, every request ends."""

from collections import Counter
from pathlib import Path

from conftest import Additional
from engine_world import MODES, Shape, World
from events import Life, shape_of
from laws import after_step, drain

SEEDS = 200
MODE_OF = list(MODES)


def live(folder: Path, seed: int, shape: Shape) -> World:
    """One life from its first request to its last block; what breaks says which seed."""
    world = World(folder, shape)
    life = Life(world, seed)
    try:
        while not life.over:
            life.act()
            world.step()
            after_step(world)
        drain(world)
    except BaseException as error:
        error.add_note(f"seed {seed}, {world.shape}")
        raise
    return world


def test_whatever_happens_the_laws_hold(model_folder: Path, scheduler: str | None, lets_in: Additional) -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS):
        world = live(model_folder, seed, shape_of(seed, MODE_OF[seed % len(MODE_OF)], scheduler, lets_in))
        seen["preempting engines"] += world.preemptions > 0
        for ask in world.asked.values():
            seen[ask.ended.name] += 1
            seen["grammars"] += ask.grammar
            seen["adapters"] += ask.adapter > 0
    assert seen["preempting engines"] > SEEDS // 10, seen
    assert min(seen[what] for what in ("STOP", "LENGTH", "ABORT", "ERROR", "grammars", "adapters")) > SEEDS // 2, seen
