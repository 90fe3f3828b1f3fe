"""The gate and the scheduler inside the engine hold the same Ranking: the same events give the same order."""

import asyncio
from typing import Any

import pytest
from gate_world import World
from hypothesis import given, settings
from hypothesis import strategies as st
from model_scheduler import ModelScheduler

from sagesched.hint import Hint, encode
from sagesched.policy import POLICIES
from sagesched.request import Outcome

LENGTH = 5
"""Tokens of each answer, where its cap allows them."""
NO_BOUNDARY = 100_000
"""Tokens of a bucket in which every request ends: both hosts then stop nowhere."""

asks = st.lists(
    st.tuples(st.integers(1, 3000), st.integers(1, 2000), st.sampled_from([-1, 0, 0, 2])), min_size=2, max_size=12
)


async def starts_of_gate(world: World, made: list[Any]) -> list[str]:
    """Requests in the order of their turns, one slot being there."""
    first = await world.enter("first")
    for number, (cap, prompt, priority) in enumerate(made):
        world.clock.now_s += 0.25
        await world.enter(f"r{number}", tokens=cap, prompt=prompt, priority=priority)
    order, place = [], first.result()
    while place is not None:
        order.append(place.id)
        world.clock.now_s += 1.0
        cap = place.ticket.request.features.max_tokens or 0
        place.finish(Outcome(output_tokens=min(LENGTH, cap), censored=cap < LENGTH))
        await asyncio.sleep(0)
        running = [task.result() for task in world.tasks.values() if task.done() and not task.result().ended]
        place = running[0] if running else None
    return order


def starts_of_engine(world: World, made: list[Any], hints: dict[str, Any]) -> list[str]:
    """The same in the engine, by the hints of the gate's own predictions."""
    engine = ModelScheduler(slots=1, settings=world.settings)
    engine.add("first", LENGTH, extra_args=hints["first"], num_prompt_tokens=0, max_tokens=4)
    engine.step()
    for number, (cap, prompt, _) in enumerate(made):
        engine.now_s = 1000.0 + 0.25 * (number + 1)
        engine.add(f"r{number}", LENGTH, extra_args=hints[f"r{number}"], num_prompt_tokens=prompt, max_tokens=cap)
    ends = 0
    while engine.requests:
        engine.now_s = 1000.0 + 0.25 * len(made) + ends
        engine.step()
        ends = len(engine.ended)
    return engine.started


@pytest.mark.parametrize("policy", sorted(POLICIES))
@given(made=asks, boost=st.sampled_from([0, 0.02, 1.0]))
@settings(max_examples=6)
def test_both_start_the_same_requests_in_the_same_order(policy: str, made: list[Any], boost: float) -> None:
    async def both() -> tuple[list[str], list[str]]:
        world = World(policy, scheduling={"boost": boost, "bucketTokens": NO_BOUNDARY})
        hints: dict[str, Any] = {}
        admit = world.gate.ranking.admit

        def told(request: Any, embedding: Any, now_s: float) -> Any:
            ticket = admit(request, embedding, now_s)
            hints[request.id] = encode(Hint.of(request, ticket.prediction.distribution, request.arrival_s))
            return ticket

        world.gate.ranking.admit = told  # type: ignore[method-assign]
        of_gate = await starts_of_gate(world, made)
        return of_gate, starts_of_engine(world, made, hints)

    of_gate, of_engine = asyncio.run(both())
    assert of_gate == of_engine
    assert len(of_gate) == len(made) + 1
