"""The gate: who starts when, and what is refused."""

import asyncio

import numpy as np
import pytest
from gate_world import DIMENSIONS, DONE, World, serve_all

from sagesched.request import Outcome, Request


async def test_fcfs_is_first_in_first_out() -> None:
    world = World("fcfs")
    for which, tokens in [("a", 8), ("b", 7), ("c", 1), ("d", 2)]:
        await world.enter(which, tokens=tokens)
        world.clock.now_s += 1
    assert await serve_all(world) == ["a", "b", "c", "d"]
    world.assert_empty()


async def test_otherwise_the_smaller_rank_goes_first_and_a_class_before_it() -> None:
    world = World("sjf")
    await world.enter("runs")
    for which, tokens, priority in [("long", 8, 0), ("short", 1, 0), ("middle", 4, 0)]:
        await world.enter(which, tokens=tokens, priority=priority)
    await world.enter("late", tokens=1, priority=1)
    await world.enter("first", tokens=8, priority=-1)
    assert world.gate.snapshot().waiting_by_class == {"default": 5}
    assert await serve_all(world) == ["runs", "first", "short", "middle", "long", "late"]
    world.assert_empty()


@pytest.mark.parametrize(("slots", "extra"), [(1, 0), (3, 0), (3, 2)])
async def test_no_more_run_than_there_are_slots(slots: int, extra: int) -> None:
    world = World(engine={"slots": slots, "extraSlots": extra})
    for k in range(8):
        await world.enter(f"r{k}")
    assert world.gate.snapshot().running == slots + extra
    assert world.gate.snapshot().waiting == 8 - slots - extra
    (await world.tasks["r0"]).drop()
    assert world.gate.snapshot().running == slots + extra, "the next one starts in the same turn of the loop"
    assert len(await serve_all(world)) == 8


async def test_the_predicted_peak_must_fit_the_cache() -> None:
    world = World(engine={"slots": 10, "kvTokens": 100})
    first = await world.enter("first", prompt=45, tokens=5)
    await world.enter("second", prompt=40, tokens=8)
    assert world.gate.snapshot().running == 2, "45 + 5 and 40 + 5 when the first ends"
    await world.enter("large", prompt=20, tokens=1)
    await world.enter("small", prompt=1, tokens=1)
    assert world.granted() == ["first", "second"], "and none passes the one whose turn it is"
    (await first).finish(DONE)
    assert world.granted() == ["first", "second", "large", "small"]


async def test_the_reserve_is_kept_free() -> None:
    for reserve, running in ((0.0, 2), (0.5, 1)):
        world = World(engine={"slots": 10, "kvTokens": 100, "kvReserve": reserve})
        await world.enter("a", prompt=40, tokens=5)
        await world.enter("b", prompt=40, tokens=5)
        assert world.gate.snapshot().running == running


@pytest.mark.parametrize(("lengths", "running"), [((100, 100), 2), ((10, 190), 1)])
async def test_what_may_come_out_longer_than_its_mean_has_room_kept_for_it(
    lengths: tuple[int, int], running: int
) -> None:
    world = World(engine={"slots": 10, "kvTokens": 260})
    somewhere = np.eye(DIMENSIONS, dtype=np.float32)[0]
    for k in range(400):
        world.gate.ranking.learn(Request(id=f"h{k}"), somewhere, Outcome(output_tokens=lengths[k % 2]))
    for which in ("a", "b"):
        await world.enter(which, tokens=1000)
    assert world.gate.snapshot().running == running, "both means fit, and not the spread of 10 or 190"


async def test_a_request_alone_starts_whatever_its_size() -> None:
    world = World(engine={"slots": 4, "kvTokens": 100})
    await world.enter("huge", prompt=100_000)
    await world.enter("small", prompt=1)
    assert world.granted() == ["huge"]
    assert await serve_all(world) == ["huge", "small"]


@pytest.mark.parametrize("policy", ["fcfs", "sagesched"])
async def test_what_outlives_its_prediction_still_has_tokens_to_come(policy: str) -> None:
    """Also where the policy never ranks anew: the peak counts on it (docs/method.md section 4)."""
    world = World(policy)
    place = await world.gate.enter(Request(id="r", arrival_s=world.clock()), None, 1)
    for generated in (5000, 8000, 13_000, 20_000):
        place.progress(generated)
        held, ahead = place.kv_tokens()
        assert held == generated
        assert ahead >= 0.1 * generated


async def test_a_full_queue_is_a_429_that_says_when_to_come_back() -> None:
    world = World(queue={"maxRequests": 2})
    for which in ("runs", "one", "two", "three"):
        await world.enter(which)
    refusal = await world.refused("three")
    assert (refusal.reason, refusal.status) == ("queue-full", 429)
    assert 1 <= refusal.retry_after_s <= 60
    assert world.gate.snapshot().waiting == 2
    assert await serve_all(world) == ["runs", "one", "two"]
    world.assert_empty()


async def test_the_queue_is_bounded_too_where_memory_and_not_slots_are_short() -> None:
    world = World(engine={"slots": 50, "kvTokens": 100}, queue={"maxRequests": 2})
    for k in range(9):
        await world.enter(f"r{k}", prompt=90)
    assert world.gate.snapshot().waiting == 2
    assert {(await world.refused(f"r{k}")).reason for k in range(3, 9)} == {"queue-full"}


async def test_the_queue_is_bounded_in_bytes() -> None:
    world = World(queue={"maxBytes": 2048})
    await world.enter("runs", bytes_=2000)
    await world.enter("fits", bytes_=1500)
    assert world.gate.snapshot().waiting_bytes == 1500, "what runs waits no longer"
    await world.enter("large", bytes_=549)
    refusal = await world.refused("large")
    assert (refusal.reason, refusal.status) == ("queue-bytes-full", 429)
    await world.enter("exact", bytes_=548)
    assert world.gate.snapshot().waiting_bytes == 2048
    assert sorted(await serve_all(world)) == ["exact", "fits", "runs"]
    world.assert_empty()


async def test_what_waits_too_long_is_a_503_and_what_runs_goes_on() -> None:
    world = World(queue={"maxAgeSeconds": 0.05}, scheduling={"maxWaitSeconds": 0.05})
    runs = await world.enter("runs")
    await world.enter("old")
    world.clock.now_s += 10
    await world.enter("young")
    refusal = await world.refused("old")
    assert (refusal.reason, refusal.status) == ("queue-age", 503)
    assert world.counts.outcomes["old"] == ["queue-age"]
    assert world.gate.snapshot().waiting == 1
    world.clock.now_s += 10
    assert (await world.refused("young")).reason == "queue-age", "the timer is set for the next one"
    (await runs).finish(DONE)
    world.assert_empty()


async def test_closed_it_takes_nobody_and_lets_the_others_finish() -> None:
    world = World()
    await world.enter("runs")
    await world.enter("waits")
    world.gate.close("draining", retry_after_s=7)
    await world.enter("late")
    refusal = await world.refused("late")
    assert (refusal.reason, refusal.status, refusal.retry_after_s) == ("draining", 503, 7)
    assert await serve_all(world) == ["runs", "waits"]
    world.gate.reopen()
    await world.enter("again")
    assert world.granted()[-1] == "again"


async def test_each_refusal_of_a_closed_gate_is_its_own() -> None:
    """One exception raised again and again would keep every frame that it ever passed, with the bodies in them."""
    world = World()
    world.gate.close("draining")
    await world.enter("one")
    await world.enter("two")
    first, second = await world.refused("one"), await world.refused("two")
    assert first is not second


async def test_the_oldest_goes_next_beyond_the_starvation_bound_and_is_counted() -> None:
    world = World("sjf", scheduling={"maxWaitSeconds": 30})
    runs = await (await world.enter("runs"))
    await world.enter("long", tokens=8)
    world.clock.now_s += 29
    small = await world.enter("small", tokens=1)
    runs.finish(DONE)
    assert world.granted() == ["runs", "small"]
    assert world.counts.promotions == 0
    await world.enter("small2", tokens=1)
    world.clock.now_s += 2
    (await small).finish(DONE)
    assert world.granted() == ["runs", "small", "long"]
    assert world.counts.promotions == 1
    (await world.tasks["long"]).finish(DONE)
    assert world.counts.promotions == 1, "not counted where it was next anyway"
    await serve_all(world)
    world.assert_empty()


async def test_capacity_that_is_learnt_starts_what_waits() -> None:
    world = World(engine={"slots": None})
    world.gate.set_capacity(1, None)
    for k in range(5):
        await world.enter(f"r{k}", prompt=40)
    assert world.gate.snapshot().running == 1
    world.gate.set_capacity(4, 100)
    assert (world.gate.snapshot().running, world.gate.snapshot().kv_tokens) == (2, 100)
    world.gate.set_capacity(None, None)
    assert (world.gate.snapshot().slots, world.gate.snapshot().kv_tokens) == (4, 100), "what is known stays"
    world.gate.set_capacity(None, 1000)
    assert world.gate.snapshot().running == 4


@pytest.mark.parametrize(("block_tokens", "fit"), [(None, 3), (2, 3), (20, 2), (60, 1)])
async def test_a_request_holds_whole_blocks_of_the_cache(block_tokens: int | None, fit: int) -> None:
    world = World(engine={"slots": 9, "kvTokens": 153, "kvReserve": 0})
    world.gate.set_capacity(None, None, block_tokens)
    for k in range(5):
        await world.enter(f"r{k}", prompt=40, tokens=10)
    assert world.gate.snapshot().running == fit, "of 50 tokens each, and half a block more"
    await serve_all(world)
    world.assert_empty()


async def test_what_the_settings_state_outweighs_what_is_learnt() -> None:
    world = World(engine={"slots": 2, "kvTokens": 50})
    world.gate.set_capacity(9, 900)
    assert (world.gate.snapshot().slots, world.gate.snapshot().kv_tokens) == (2, 50)


async def test_trouble_in_a_prediction_is_counted_and_the_request_served() -> None:
    world = World()
    place = await world.gate.enter(Request(id="r", arrival_s=world.clock()), np.ones(9, dtype=np.float32), 1)
    assert world.counts.troubles == ["ValueError"]
    assert place.finish(DONE) is not None
    world.assert_empty()


async def test_the_snapshot_tells_age_and_predicted_tokens() -> None:
    world = World()
    await world.enter("runs")
    await world.enter("waits", prompt=30, tokens=6, bytes_=77)
    world.clock.now_s += 12
    now = world.gate.snapshot()
    assert (now.waiting, now.waiting_bytes, now.running, now.oldest_s) == (1, 77, 1, 12.0)
    assert now.predicted_waiting_tokens == 36


async def test_more_slots_start_what_waits_at_once_and_fewer_let_it_run_on():
    world = World(engine={"slots": 1})
    for which in "abcd":
        await world.enter(which)
    changed = world.changed(engine={"slots": 3, "kvReserve": 0})
    world.gate.apply(changed)
    assert world.granted() == ["a", "b", "c"]
    world.gate.apply(world.changed(engine={"slots": 1, "kvReserve": 0}))
    world.tasks["a"].result().finish(DONE)
    assert world.granted() == ["a", "b", "c"]
    assert await serve_all(world) == ["a", "b", "c", "d"]
    world.assert_empty()


async def test_slots_that_were_learnt_count_again_when_the_settings_name_none():
    world = World(engine={"slots": 1})
    world.gate.set_capacity(5, 700)
    assert (world.gate.snapshot().slots, world.gate.snapshot().kv_tokens) == (1, 700)
    world.gate.apply(world.changed(engine={"slots": None, "kvTokens": 300}))
    assert (world.gate.snapshot().slots, world.gate.snapshot().kv_tokens) == (5, 300)


async def test_a_smaller_queue_keeps_what_waits_and_a_smaller_age_does_not():
    world = World(engine={"slots": 1})
    for which in "abc":
        await world.enter(which)
    world.gate.apply(world.changed(queue={"maxRequests": 1}))
    await world.enter("d")
    assert (await world.refused("d")).reason == "queue-full"
    assert world.gate.snapshot().waiting == 2
    world.clock.now_s += 50
    world.gate.apply(world.changed(queue={"maxAgeSeconds": 20}, scheduling={"maxWaitSeconds": 10}))
    assert (await world.refused("b")).reason == "queue-age"
    assert (await world.refused("c")).reason == "queue-age"


async def test_another_policy_ranks_what_waits_anew():
    world = World("fcfs", engine={"slots": 1})
    await world.enter("runs")
    for which, tokens in (("long", 900), ("short", 5), ("middle", 90)):
        await world.enter(which, tokens=tokens)
    world.gate.apply(world.changed(scheduling={"policy": "sjf"}))
    assert await serve_all(world) == ["runs", "short", "middle", "long"]


async def test_what_is_due_is_predicted_while_others_go_on():
    world = World("sjf", engine={"slots": 1})
    for k in range(20):
        await world.enter(f"r{k}", tokens=5 + k)
    world.gate.apply(world.changed(scheduling={"policy": "sjf", "neighbours": 3}))
    assert world.gate.ranking.due_count == 20
    world.tasks["r0"].result().finish(DONE)
    world.tasks["r7"].cancel()
    async with asyncio.timeout(5):
        while world.gate.ranking.due_count:
            await asyncio.sleep(0)
    assert await serve_all(world) == [f"r{k}" for k in range(20) if k != 7]
    world.assert_empty()
