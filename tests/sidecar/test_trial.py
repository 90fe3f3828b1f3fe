"""A trial tells an engine that orders by priority from one that does not, and disturbs nobody."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import pytest

from sagesched_sidecar.trial import Trial
from sagesched_sim.options import Options
from sagesched_sim.server import SimServer


def priorities(first: bool) -> dict[str, Any]:
    return {"priority": -5 if first else 5}


@pytest.fixture
async def engine() -> AsyncIterator[Callable[..., Any]]:
    async with AsyncExitStack() as stack:

        async def begin(**options: Any) -> tuple[SimServer, str]:
            server = SimServer(Options(**{"max_num_seqs": 4, **options}))
            url = await server.start()
            stack.push_async_callback(server.stop)
            return server, url

        yield begin


async def find(url: str, *, slots: int = 4, marks: Any = priorities, quiet: Any = lambda: True) -> Any:
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True)) as session:
        return await Trial(session, url, slots, marks, quiet).run()


@pytest.mark.parametrize(("policy", "verdict"), [("fcfs", "unordered"), ("priority", "ordered")])
@pytest.mark.parametrize("slots", [1, 4])
async def test_it_tells_the_two_policies_apart_whenever_it_is_asked(engine, policy, verdict, slots):
    server, url = await engine(scheduling_policy=policy, max_num_seqs=slots)
    for _ in range(2):
        found = await find(url, slots=slots)
        assert found.verdict == verdict, found
    for _ in range(200):
        if not server.paced.engine.has_work:
            break
        await asyncio.sleep(0.01)
    assert not server.paced.engine.has_work, "what the trial sent is gone with it"


@pytest.mark.parametrize("slots", [2, 6])
async def test_with_the_wrong_number_of_slots_it_says_nothing(engine, slots):
    _, url = await engine(scheduling_policy="priority", speedup=20.0)
    found = await find(url, slots=slots)
    assert found.verdict == "undecided"
    assert "engine.slots" in found.detail


async def test_it_ends_when_a_client_comes(engine):
    server, url = await engine(scheduling_policy="priority")
    found = await find(url, quiet=lambda: server.paced.engine.running_count < 4)
    assert (found.verdict, found.detail) == ("undecided", "a client's request came")


async def test_an_engine_that_is_not_there_says_nothing():
    found = await find("http://127.0.0.1:9")
    assert found.verdict == "undecided"


async def test_an_engine_that_refuses_says_nothing(engine):
    _, url = await engine(max_model_len=16)
    assert "400" in (await find(url)).detail
