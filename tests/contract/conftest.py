"""The engines under contract: the simulated one, and a real vLLM (the tier `engine`)."""

from collections.abc import AsyncIterator

import pytest
from real_engine import STOCK, Engines

from sagesched_sim.options import Options
from sagesched_sim.server import SimServer

# The first test has the engine's start in its time.
VLLM = pytest.param("vllm", marks=[pytest.mark.engine, pytest.mark.timeout(400)])


@pytest.fixture(params=["simulated", VLLM])
async def engine_url(request: pytest.FixtureRequest) -> AsyncIterator[str]:
    """Base URL of an engine that serves one model."""
    if request.param == "vllm":
        engines: Engines = request.getfixturevalue("engines")
        yield engines.start(*STOCK).url
        return
    server = SimServer(Options(speedup=200.0, drain_s=1.0))
    yield await server.start()
    await server.stop()
