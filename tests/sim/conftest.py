"""The engine's server in the test's own loop: starts in milliseconds, on a free port."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from sagesched_sim.options import Options
from sagesched_sim.server import SimServer

StartServer = Callable[..., Awaitable[tuple[SimServer, str]]]


@pytest.fixture
async def start_server() -> AsyncIterator[StartServer]:
    """`server, url = await start_server(speedup=..., ...)`; stopped after the test."""
    async with AsyncExitStack() as stack:

        async def start(**options: object) -> tuple[SimServer, str]:
            given = {"speedup": 200.0, "max_num_seqs": 16, "drain_s": 1.0} | options
            server = SimServer(Options(**given))  # type: ignore[arg-type]
            url = await server.start()
            stack.push_async_callback(server.stop)
            return server, url

        yield start


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], Awaitable[None]]:
    """`await until(lambda: ...)`: lets the loop run until it is so; fails after 20 s."""

    async def wait(true: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not true():
                await asyncio.sleep(0.001)

    return wait
