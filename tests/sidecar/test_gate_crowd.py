"""The gate under a random crowd: whatever happens, all counters return to zero."""

import asyncio

from gate_world import World
from hypothesis import given, settings
from hypothesis import strategies as st

from sagesched.kv import predicted_peak_tokens
from sagesched.request import Features, Outcome, Request
from sagesched_sidecar.gate import Place, Refused

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
