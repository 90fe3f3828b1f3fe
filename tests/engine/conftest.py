"""Two real engines for the whole tier, and sidecars in this process before them."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from real_engine import PRIORITY, STOCK, Engines, RealEngine

from sagesched.embed import open_embedder
from sagesched_sidecar.options import parse_options
from sagesched_sidecar.server import Sidecar, running


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything here is of the tier, and has the engine's start in its time."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.engine)
            item.add_marker(pytest.mark.timeout(400))


@pytest.fixture
def fcfs(engines: Engines) -> RealEngine:
    """vLLM's own order, and a small KV cache."""
    return engines.start(*STOCK)


@pytest.fixture
def by_priority(engines: Engines) -> RealEngine:
    """`--scheduling-policy priority`."""
    return engines.start(*PRIORITY)


StartSidecar = Callable[..., Awaitable[Sidecar]]


@pytest.fixture
async def before(tmp_path: Path) -> AsyncIterator[StartSidecar]:
    """`await before(url, {settings})`: a sidecar before that engine, once it has seen it."""
    async with AsyncExitStack() as stack:

        async def start(url: str, settings: dict[str, Any] | None = None) -> Sidecar:
            file = tmp_path / "settings.json"
            file.write_text(json.dumps(settings or {}), encoding="utf-8")
            options = parse_options(["--upstream", url, "--port", "0", "--settings", str(file)])
            sidecar = await stack.enter_async_context(running(options, open_embedder(options.settings.embedding)))
            async with asyncio.timeout(20):
                while not sidecar.monitor.reachable:
                    await asyncio.sleep(0.02)
            return sidecar

        yield start


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    """A client without a limit of connections."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        yield session
