"""What a sidecar tells a scheduler of ours; vLLM's own does not look at it."""

import random
from typing import Any

from sagesched.hint import Hint, encode


def told(*lengths: float, priority: int = 0) -> dict[str, Any]:
    """The extra arguments of a request that is as likely to be each of these lengths, in output tokens."""
    return dict(encode(Hint(lengths=lengths, weights=(1.0,) * len(lengths), priority=priority)))


def any_hint(rng: random.Random) -> dict[str, Any] | None:
    """None, one that is right or wrong about the request, or one that nobody can read."""
    kind = rng.random()
    if kind < 0.3:
        return None
    if kind < 0.4:
        return {"sagesched_v": rng.choice((1, 2, "x")), "sagesched_lengths": rng.choice(([], "a", [3.0, 1.0]))}
    lengths = sorted({float(rng.randint(1, 200)) for _ in range(rng.randint(1, 32))})
    return told(*lengths, priority=rng.choice((0, 0, -1, 3)))
