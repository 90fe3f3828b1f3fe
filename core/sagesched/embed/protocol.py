"""What an embedder is: prompt text in, unit vector out."""

from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float32]


class Embedder(Protocol):
    """Turns any text into a unit vector; equal texts give equal vectors."""

    @property
    def name(self) -> str:
        """Names the vector space: vectors of two embedders are comparable only if their names are equal."""

    @property
    def dimensions(self) -> int:
        """Length of every vector."""

    @property
    def blocking(self) -> bool:
        """True when `embed` is too slow for an event loop: call it in a worker thread, one call at a time."""

    def embed(self, text: str) -> FloatArray:
        """A finite unit vector, float32 (dimensions,). No str makes it raise; blank text gives a fixed one."""
