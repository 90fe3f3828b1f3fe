"""What runs is kept in order, due and summed as it changes: always what it would be if all were looked at each step."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_scheduler import ModelScheduler, hint

from sagesched.settings import Preemption, Scheduling, Settings
from sagesched_vllm.counters import FALLBACK_STEPS, REFRESHED

steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 90), st.integers(1, 90)),
        st.tuples(st.just("abort"), st.integers(0, 50)),
        st.tuples(st.just("bucket"), st.integers(5, 60)),
        st.tuples(st.just("step"), st.integers(1, 9)),
    ),
    max_size=40,
)


@given(steps, st.integers(1, 40), st.booleans())
@settings(max_examples=30)
def test_order_and_sums_are_those_of_looking_at_everybody(made: list[Any], slots: int, preempts: bool) -> None:
    rule = Preemption(enabled=preempts)
    engine = ModelScheduler(slots=slots, blocks=60, settings=Settings(preemption=rule))
    for number, (what, *values) in enumerate(made):
        if what == "add":
            engine.add(f"r{number}", values[0], extra_args=hint(float(values[1]), 200.0))
        elif what == "abort" and engine.requests:
            engine.abort(list(engine.requests)[values[0] % len(engine.requests)])
        elif what == "bucket":
            engine.news.put(Settings(scheduling=Scheduling(bucket_tokens=values[0]), preemption=rule))
        for _ in range(values[0] if what == "step" else 1):
            engine.step(before_it=lambda: looked_at(engine))
    engine.drain()
    assert engine.sage.counters.total(FALLBACK_STEPS) == 0


def looked_at(engine: ModelScheduler) -> None:
    """Between our look and the engine's own step."""
    running = engine.sage.order.running
    assert running.members.keys() == {request.request_id for request in engine.running}
    ranks = [running.members[request.request_id].ticket.rank for request in engine.running]
    assert ranks == sorted(ranks), "the worst last"
    held = running.members.values()
    assert running.end_tokens == pytest.approx(math.fsum(h.end_tokens() for h in held))
    assert running.variance == pytest.approx(math.fsum(h.spread_tokens**2 for h in held))
    bucket = engine.sage.order.ranking.settings.scheduling.bucket_tokens
    for one in held:
        assert one.request.num_output_tokens < one.due_tokens <= one.request.num_output_tokens + bucket
        assert one.request.num_output_tokens < one.expected_tokens
        assert one.ticket.generated_tokens // bucket == one.request.num_output_tokens // bucket


@given(st.integers(1, 12), st.integers(1, 90), st.integers(1, 4))
@settings(max_examples=30)
def test_steps_of_several_tokens_refresh_once_for_each_boundary_that_is_seen(
    bucket: int, length: int, step_tokens: int
) -> None:
    """As with speculative decoding: a request may jump over a boundary, and is looked at in the next step."""
    chosen = Settings(scheduling=Scheduling(bucket_tokens=bucket))
    engine = ModelScheduler(slots=1, settings=chosen, step_tokens=step_tokens)
    engine.add("r", length, extra_args=hint(500.0))
    engine.drain()
    seen = {tokens // bucket for tokens in range(0, length, step_tokens)}
    assert engine.sage.counters.total(REFRESHED) == len(seen) - 1


def test_those_whose_prompt_is_computed_are_behind_those_that_generate() -> None:
    engine = ModelScheduler(
        slots=3, settings=Settings(scheduling=Scheduling(boost=0), preemption=Preemption(enabled=False))
    )
    engine.add("long", 300, extra_args=hint(300.0))
    engine.step()
    short = engine.add("short", 5, num_prompt_tokens=40, extra_args=hint(5.0))
    engine.step()
    short.num_computed_tokens = 20  # as after a chunk
    short.num_output_tokens = 0
    engine.sage.before()
    assert [request.request_id for request in engine.running] == ["long", "short"]
    engine.sage.after(0, 0)
    short.num_computed_tokens = 40
    engine.sage.before()
    assert [request.request_id for request in engine.running] == ["short", "long"]
    engine.sage.after(0, 0)
