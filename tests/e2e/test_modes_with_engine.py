"""The modes in front of the simulated engine: what it can do is found out, and what the mode promises happens."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import aiohttp
import numpy as np
import pytest

from sagesched.settings import decode
from sagesched_sidecar.options import Options
from sagesched_sidecar.server import Sidecar, running
from sagesched_sim.options import Options as EngineOptions
from sagesched_sim.server import SimServer


class OneVector:
    name, dimensions, blocking = "one", 4, False

    def embed(self, text: str) -> Any:
        return np.full(4, 0.5, dtype=np.float32)


@pytest.fixture
async def pair() -> AsyncIterator[Callable[..., Any]]:
    """`await pair(mode, policy, slots, **engine settings)`: the simulated engine and a sidecar before it."""
    async with AsyncExitStack() as stack:

        async def begin(mode: str, policy: str, slots: int = 1, **engine: Any) -> tuple[SimServer, Sidecar, str]:
            server = SimServer(EngineOptions(max_num_seqs=slots, scheduling_policy=policy))
            url = await server.start()
            stack.push_async_callback(server.stop)
            section = {"mode": mode, "slots": slots, "metricsIntervalSeconds": 0.05, **engine}
            settings = decode({"engine": section, "scheduling": {"policy": "sjf"}})
            sidecar = await stack.enter_async_context(
                running(Options(url, "127.0.0.1", 0, "info", settings, None), OneVector())
            )
            host, port = sidecar.address
            return server, sidecar, f"http://{host}:{port}"

        yield begin


async def until(happened: Callable[[], object]) -> None:
    while not happened():
        await asyncio.sleep(0.01)


async def answered_in_order(server: SimServer, url: str, lengths: dict[str, int]) -> list[str]:
    """Who is answered when, of requests that came one after the other while the first held the engine's only slot."""
    done: list[str] = []
    engine = server.paced.engine
    async with aiohttp.ClientSession() as session:

        async def ask(name: str, tokens: int) -> None:
            body = {"prompt": name, "max_tokens": tokens, "ignore_eos": True}
            async with session.post(f"{url}/v1/completions", json=body) as answer:
                await answer.read()
                assert answer.status == 200
            done.append(name)

        asked = []
        for count, (name, tokens) in enumerate(lengths.items(), start=1):
            asked.append(asyncio.create_task(ask(name, tokens)))
            await until(lambda count=count: engine.running_count + engine.waiting_count == count)
        await asyncio.gather(*asked)
    return done


LENGTHS = {"holds": 60, "long": 30, "middle": 20, "short": 10}


@pytest.mark.parametrize("slots", [1, 3])
async def test_an_engine_that_orders_is_found_out_and_then_ordered(pair: Any, slots: int) -> None:
    server, sidecar, url = await pair("priority", "priority", slots)
    await until(lambda: sidecar.gate.entry == "ranked")
    await until(lambda: not server.paced.engine.has_work)
    if slots == 1:
        assert await answered_in_order(server, url, LENGTHS) == ["holds", "short", "middle", "long"]


async def test_an_engine_that_does_not_is_refused_and_served_by_the_gate(pair: Any) -> None:
    _, sidecar, url = await pair("priority", "fcfs")
    async with aiohttp.ClientSession() as session:

        async def mode() -> dict[str, str]:
            async with session.get(f"{url}/sagesched/status") as answer:
                return (await answer.json())["mode"]

        while (found := await mode())["reason"] == "unverified":
            await asyncio.sleep(0.02)
        async with session.get(f"{url}/metrics") as answer:
            page = await answer.text()
    assert (found["configured"], found["effective"], found["reason"]) == ("priority", "gate", "refused")
    assert 'sagesched_engine_trials_total{verdict="unordered"} 1.0' in page
    assert 'vllm:num_requests_running{engine="0",model_name="sagesched-sim"}' in page
    assert sidecar.gate.entry == "room"


async def test_forced_on_an_engine_without_priorities_all_is_served_in_the_order_of_arrival(pair: Any) -> None:
    server, _, url = await pair("priority", "fcfs", force=True)
    assert await answered_in_order(server, url, LENGTHS) == list(LENGTHS)


async def test_shadow_keeps_the_order_and_says_what_ours_would_have_saved(pair: Any) -> None:
    server, _, url = await pair("shadow", "fcfs")
    assert await answered_in_order(server, url, LENGTHS) == list(LENGTHS)
    async with aiohttp.ClientSession() as session:
        shadow: dict[str, Any] = {}
        while shadow.get("requests") != 4:
            await asyncio.sleep(0.02)
            async with session.get(f"{url}/sagesched/status") as answer:
                shadow = (await answer.json())["shadow"]
        async with session.get(f"{url}/sagesched/explain/{shadow['order'][1]}") as answer:
            second = await answer.json()
        async with session.get(f"{url}/metrics") as answer:
            page = await answer.text()
    assert shadow["mean_wait_saved_s"] > 0
    assert second["ended"]["output_tokens"] == 10, "the shortest would have gone before the two that came earlier"
    assert second["shadow"]["waited_s"] > second["shadow"]["would_have_waited_s"] > 0
    assert "sagesched_shadow_requests_total 4.0" in page
    assert "sagesched_shadow_wait_saved_seconds" in page


async def test_where_all_goes_in_at_once_the_pace_of_the_engine_is_learnt_all_the_same(pair: Any) -> None:
    server, sidecar, url = await pair("priority", "priority", force=True)
    assert sidecar.gate.ranking.unit.mean_service_s == 1.0
    await answered_in_order(server, url, {"holds": 60} | {f"r{k}": 4 for k in range(8)})
    assert 0 < sidecar.gate.ranking.unit.mean_service_s < 0.9
    assert sidecar.gate.ranking.unit.token_s == 0.0, "nobody saw when these began"
