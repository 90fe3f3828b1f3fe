"""The gate: a place ends once, and is free again however and whenever its client leaves."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gate_world import DONE, World, serve_all

from sagesched.request import Request


async def test_a_client_that_leaves_while_it_waits_frees_its_place() -> None:
    world = World()
    await world.enter("runs")
    gone = await world.enter("gone", bytes_=500)
    await world.enter("next")
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert world.gate.snapshot().waiting_bytes == 10
    assert await serve_all(world) == ["runs", "next"]
    assert world.counts.outcomes["gone"] == ["left"]
    world.assert_empty()


@pytest.mark.parametrize("cancelled_first", [False, True])
async def test_a_client_that_leaves_in_the_turn_of_its_grant_frees_the_slot(cancelled_first: bool) -> None:
    world = World()
    runs = await (await world.enter("runs"))
    gone = await world.enter("gone")
    await world.enter("next")
    if cancelled_first:
        gone.cancel()
    runs.finish(DONE)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    assert world.counts.outcomes["gone"] == ["left" if cancelled_first else "granted"]
    assert world.gate.snapshot().running == 1
    assert (await world.tasks["next"]).id == "next"
    await serve_all(world)
    world.assert_empty()


async def test_a_client_that_leaves_in_the_turn_of_its_refusal_leaves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    runs = await world.enter("runs")
    gone = await world.enter("gone")
    world.gate.refuse_waiting("draining")
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    (await runs).finish(DONE)
    world.assert_empty()
    assert not caplog.records, "no exception that was never retrieved"


async def test_any_number_of_clients_may_leave_at_once() -> None:
    world = World()
    runs = await world.enter("runs")
    crowd = [asyncio.ensure_future(world.gate.enter(Request(id=f"r{k}"), None, 1)) for k in range(1500)]
    await asyncio.sleep(0)
    for task in crowd:
        task.cancel()
    results = await asyncio.gather(*crowd, return_exceptions=True)
    assert {type(result) for result in results} == {asyncio.CancelledError}
    (await runs).finish(DONE)
    world.assert_empty()


@pytest.mark.parametrize("first", ["finish", "drop", "fail"])
@pytest.mark.parametrize("second", ["finish", "drop", "fail", "progress"])
async def test_a_place_ends_once(first: str, second: str) -> None:
    world = World(engine={"slots": 1})
    embedding = np.array([1, 0, 0, 0], dtype=np.float32)
    request = Request(id="r", arrival_s=world.clock())
    place = await world.gate.enter(request, embedding, 10)
    await world.enter("next")
    ends: dict[str, Callable[[], Any]] = {
        "finish": lambda: place.finish(DONE),
        "drop": lambda: place.drop(3),
        "fail": place.fail,
        "progress": lambda: place.progress(2000),
    }
    assert (ends[first]() is not None) == (first == "finish")
    assert ends[second]() is None
    assert len(world.gate.ranking.predictor.window) == (first != "fail"), "learnt once; of a failure, nothing"
    assert world.gate.snapshot().running == 1, "one slot was freed, not two"
    await serve_all(world)
    world.assert_empty()


async def test_refusing_all_that_wait_starts_none_of_them() -> None:
    """Not even the small one that would fit once the large one before it is gone."""
    world = World(engine={"slots": 10, "kvTokens": 100})
    runs = await world.enter("runs", prompt=50)
    await world.enter("large", prompt=90)
    await world.enter("small", prompt=1)
    await world.enter("leaves", prompt=1)
    world.tasks["leaves"].cancel()
    world.gate.refuse_waiting("draining", retry_after_s=3)
    for which in ("large", "small"):
        refusal = await world.refused(which)
        assert (refusal.reason, refusal.status, refusal.retry_after_s) == ("draining", 503, 3)
    with pytest.raises(asyncio.CancelledError):
        await world.tasks["leaves"]
    assert world.counts.outcomes["leaves"] == ["left"]
    assert world.gate.snapshot().running == 1
    (await runs).finish(DONE)
    world.assert_empty()
