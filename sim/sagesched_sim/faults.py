"""Faults on purpose, by seed, for tests of what stands in front of the engine. Off by default."""

import random
from collections.abc import Sequence

import msgspec


class Fault(msgspec.Struct, frozen=True):
    """What goes wrong with one request. Kinds: `error500` before the first byte; `disconnect`; `stall`."""

    kind: str
    after_events: int
    """Events that go out before a disconnect or a stall."""


class Faults:
    """Draws a fault, or none, for each request in turn."""

    def __init__(self, rate: float, kinds: Sequence[str], seed: int) -> None:
        self._rate = rate
        self._kinds = tuple(kinds)
        self._rng = random.Random(seed)  # noqa: S311 (not a secret)

    def draw(self) -> Fault | None:
        """The next request's fault."""
        if not self._kinds or self._rng.random() >= self._rate:
            return None
        return Fault(self._rng.choice(self._kinds), self._rng.randrange(8))
