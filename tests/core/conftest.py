"""What the core's tests share: exact unit vectors, settings by section, a ranking that is quick to fill."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sagesched.gittins import Stopping
from sagesched.history import Vector
from sagesched.ranking import Ranking
from sagesched.settings import decode

DIMENSIONS = 8


@pytest.fixture(scope="session")
def vector() -> Callable[[int], Vector]:
    """The k-th of many unit vectors whose products are exact multiples of a quarter, so that ties are ties."""

    def make(k: int) -> Vector:
        rng = np.random.default_rng(k)
        made = np.zeros(DIMENSIONS, dtype=np.float32)
        made[rng.permutation(DIMENSIONS)[:4]] = rng.choice([-0.5, 0.5], 4)
        return made

    return make


@pytest.fixture(scope="session")
def ranking_of() -> Callable[..., Ranking]:
    """A ranking from sections in the names of the file: `ranking_of(scheduling={"policy": "fcfs"})`."""

    def make(stopping: Stopping = Stopping.NEVER, **sections: dict[str, Any]) -> Ranking:
        sections["history"] = {"windowRows": 50, **sections.get("history", {})}
        return Ranking(decode(sections), stopping=stopping, dimensions=DIMENSIONS)

    return make
