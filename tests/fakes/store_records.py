"""Records as the store's tests want them, and a place where no test's path matters."""

import array
import random

from sagesched.request import Features
from sagesched_store.record import Record, Space

SPACE = Space("letters-1", 4)


def record(number, tenant="", space=SPACE, **fields):
    """The record of that number: its time and its vector follow from it."""
    rng = random.Random(number)
    vector = array.array("f", [rng.uniform(-1, 1) for _ in range(space.dimensions)])
    given = {
        "embedding": vector.tobytes(),
        "embedder": space.embedder,
        "model": rng.choice(["", "m", "org/model"]),
        "tenant": tenant,
        "prompt_tokens": rng.randrange(1, 5000),
        "output_tokens": rng.randrange(1, 5000),
        "censored": rng.random() < 0.2,
        "features": Features(
            asked_number=rng.choice([None, 300.5]),
            max_tokens=rng.choice([None, 64]),
            choices=rng.choice([1, 3]),
            effort=rng.choice(["", "high"]),
            tools=rng.random() < 0.5,
        ),
        "finished_s": 1_700_000_000.0 + number,
        "request": f"{number:032x}",
    }
    return Record(**given | fields)
