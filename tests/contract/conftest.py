"""The engine under contract: the simulated one, or a real one whose address the environment gives."""

import os
from collections.abc import AsyncIterator

import pytest

from sagesched_sim.options import Options
from sagesched_sim.server import SimServer


@pytest.fixture
async def engine_url() -> AsyncIterator[str]:
    """Base URL of an engine that serves one model. SAGESCHED_CONTRACT_URL names a running one, such as a real vLLM."""
    given = os.environ.get("SAGESCHED_CONTRACT_URL")
    if given:
        yield given.rstrip("/")
        return
    server = SimServer(Options(speedup=200.0, drain_s=1.0))
    yield await server.start()
    await server.stop()
