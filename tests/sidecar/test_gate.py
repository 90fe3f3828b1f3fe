"""The gate: who starts when, what is refused, and that a place is free again however it ends."""

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagesched.gittins import Stopping
from sagesched.kv import predicted_peak_tokens
from sagesched.ranking import Ranking
from sagesched.request import Features, Outcome, Request
from sagesched.settings import decode
from sagesched.ticket import Ticket
from sagesched_sidecar.gate import Gate, Place, Refused

DIMENSIONS = 4
DONE = Outcome(output_tokens=5)


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Counts:
    """What the gate told."""

    def __init__(self) -> None:
        self.outcomes: dict[str, list[str]] = {}
        self.promotions = 0
        self.troubles: list[str] = []
        self.on_grant: Callable[[], None] = lambda: None

    def waited(self, ticket: Ticket, outcome: str, seconds: float) -> None:
        assert seconds >= 0
        self.outcomes.setdefault(ticket.request.id, []).append(outcome)
        if outcome == "granted":
            self.on_grant()

    def promoted(self) -> None:
        self.promotions += 1

    def troubled(self, cause: str) -> None:
        self.troubles.append(cause)


class World:
    """A gate, its clock, and its clients. A length is told by `max_tokens`, all of it being predicted."""

    def __init__(self, policy: str = "fcfs", **sections: dict[str, Any]) -> None:
        sections["engine"] = {"slots": 1, "kvReserve": 0, **sections.get("engine", {})}
        sections["scheduling"] = {"policy": policy, **sections.get("scheduling", {})}
        self.settings = decode(sections)
        self.clock, self.counts = Clock(), Counts()
        ranking = Ranking(self.settings, stopping=Stopping.NEVER, dimensions=DIMENSIONS)
        self.gate = Gate(ranking, self.settings.queue, self.settings.engine, clock=self.clock, observer=self.counts)
        self.tasks: dict[str, asyncio.Task[Place]] = {}

    async def enter(
        self, which: str, *, tokens: int = 4, prompt: int = 0, priority: int = 0, bytes_: int = 10
    ) -> asyncio.Task[Place]:
        """A client that has come as far as it gets by itself."""
        request = Request(
            id=which,
            prompt_tokens=prompt,
            priority=priority,
            arrival_s=self.clock(),
            features=Features(max_tokens=tokens),
        )
        self.tasks[which] = asyncio.ensure_future(self.gate.enter(request, None, bytes_))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return self.tasks[which]

    def granted(self) -> list[str]:
        """Who has had a turn, in order."""
        return [which for which, outcomes in self.counts.outcomes.items() if outcomes == ["granted"]]

    async def refused(self, which: str) -> Refused:
        with pytest.raises(Refused) as caught:
            await self.tasks[which]
        return caught.value

    def assert_empty(self) -> None:
        now = self.gate.snapshot()
        assert (now.waiting, now.waiting_bytes, now.running, now.oldest_s) == (0, 0, 0, 0.0)
        assert now.waiting_by_priority == {}
        assert now.predicted_waiting_tokens == 0
        assert self.gate.ranking.tickets() == []


async def serve_all(world: World) -> list[str]:
    """Finish whoever runs, one at a time, until nobody is left; who started, in order."""
    while any(not task.done() for task in world.tasks.values()) or world.gate.snapshot().running:
        await asyncio.sleep(0)
        for task in world.tasks.values():
            if task.done() and not task.cancelled() and not task.exception() and not task.result().ended:
                task.result().finish(DONE)
                break
    return world.granted()


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
    assert world.gate.snapshot().waiting_by_priority == {-1: 1, 0: 3, 1: 1}
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


actions = st.lists(
    st.tuples(
        st.sampled_from(
            ["enter"] * 6
            + ["finish", "drop", "fail", "cancel", "cancel", "progress", "turn", "turn"]
            + ["later", "capacity", "close", "reopen", "refuse"]
        ),
        st.integers(0, 10_000),
    ),
    min_size=5,
    max_size=70,
)


class Crowd(World):
    """Clients at random. What must hold is checked at each grant and after each action."""

    def __init__(self, policy: str, slots: int, kv_tokens: int | None) -> None:
        super().__init__(
            policy,
            engine={"slots": slots, "kvTokens": kv_tokens},
            queue={"maxRequests": 6, "maxBytes": 1024},
            scheduling={"maxWaitSeconds": 20},
        )
        self.slots, self.kv_tokens = slots, kv_tokens
        self.counts.on_grant = self.check_room
        self.places: list[Place] = []

    def check_room(self) -> None:
        running = list(self.gate._running.values())
        assert len(running) <= self.slots
        if self.kv_tokens is not None and len(running) > 1:
            held, ahead = zip(*(place.kv_tokens() for place in running), strict=True)
            assert predicted_peak_tokens(held, ahead) <= self.kv_tokens

    async def client(self, which: str, chosen: int) -> None:
        request = Request(
            id=which,
            prompt_tokens=chosen % 50,
            priority=chosen % 3 - 1,
            arrival_s=self.clock(),
            features=Features(max_tokens=1 + chosen % 8),
        )
        place = await self.gate.enter(request, None, chosen % 300)
        self.places.append(place)
        try:
            await asyncio.Event().wait()
        finally:
            place.drop(chosen % 5)

    def act(self, action: str, chosen: int) -> None:
        alive = [task for task in self.tasks.values() if not task.done()]
        open_places = [place for place in self.places if not place.ended]
        if action == "enter":
            which = f"r{len(self.tasks)}"
            self.tasks[which] = asyncio.ensure_future(self.client(which, chosen))
        elif action == "cancel" and alive:
            alive[chosen % len(alive)].cancel()
        elif action in ("finish", "drop", "fail", "progress") and open_places:
            self.act_on(open_places[chosen % len(open_places)], action, chosen)
        else:
            self.act_on_gate(action, chosen)

    def act_on(self, place: Place, action: str, chosen: int) -> None:
        if action == "finish":
            assert place.finish(Outcome(output_tokens=chosen % 9)) is not None
        elif action == "drop":
            place.drop(chosen % 9)
        elif action == "fail":
            place.fail()
        else:
            place.progress(place.ticket.generated_tokens + chosen % 300)

    def act_on_gate(self, action: str, chosen: int) -> None:
        if action == "later":
            self.clock.now_s += chosen % 15
        elif action == "capacity":
            self.gate.set_capacity(chosen % 9 + 1, None)
        elif action == "close":
            self.gate.close("draining")
        elif action == "reopen":
            self.gate.reopen()
        elif action == "refuse":
            self.gate.refuse_waiting("draining")

    def check(self) -> None:
        now = self.gate.snapshot()
        waiting = [place for place in self.gate._places.values() if place.id not in self.gate._running]
        assert now.waiting == len(waiting) == self.gate.ranking.waiting_count <= 6
        assert now.waiting_bytes == sum(place.body_bytes for place in waiting) <= 1024
        assert now.running == self.gate.ranking.running_count <= self.slots
        assert now.running == len([place for place in self.gate._running.values() if not place.ended])
        assert not (now.waiting and not now.running) or any(place.granted.done() for place in waiting)

    async def run(self, of: list[tuple[str, int]]) -> None:
        for action, chosen in of:
            if action == "turn":
                await asyncio.sleep(0)
            self.act(action, chosen)
            self.check()
        for task in self.tasks.values():
            task.cancel()
        for result in await asyncio.gather(*self.tasks.values(), return_exceptions=True):
            assert isinstance(result, (asyncio.CancelledError, Refused)), result
        self.assert_empty()
        assert all(len(outcomes) == 1 for outcomes in self.counts.outcomes.values()), "each stops waiting once"
        assert len(self.counts.outcomes) <= len(self.tasks)


@settings(max_examples=120, deadline=None)
@given(st.sampled_from(["fcfs", "sjf", "sagesched"]), st.integers(1, 4), st.none() | st.integers(20, 150), actions)
def test_whatever_happens_all_counters_return_to_zero(
    policy: str, slots: int, kv_tokens: int | None, of: list[tuple[str, int]]
) -> None:
    async def scenario() -> None:
        await Crowd(policy, slots, kv_tokens).run(of)

    asyncio.run(scenario())
