"""Laws of the engine with SageSched inside it, under random arrivals, aborts and tiny caches; and its order by hand."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagesched.gittins import Stopping
from sagesched.ranking import Ranking
from sagesched.request import Outcome, Request
from sagesched.settings import Preemption, Scheduling, Settings
from sagesched_sim.engine import EngineLimits, EngineRequest, StepResult
from sagesched_sim.ordered import OrderedEngine
from sagesched_sim.profile import profile_named

PROFILE = profile_named("llama-3.1-8b-rtx4090")
SHORT, LONG = np.eye(2, dtype=np.float32)
"""Vectors of prompts whose answers history knows to be short, and long."""

plans = st.lists(
    st.tuples(
        st.integers(1, 40),  # prompt tokens
        st.integers(1, 60),  # true output tokens
        st.booleans(),  # whether a short answer is predicted
        st.integers(0, 40),  # step before which it arrives
        st.none() | st.integers(1, 60),  # step before which it is aborted
    ),
    min_size=1,
    max_size=14,
)
engines = st.builds(
    lambda slots, blocks, resume, policy, hysteresis, cap, reserve: made(
        EngineLimits(
            max_num_seqs=slots,
            max_num_batched_tokens=64,
            block_size=4,
            num_blocks=blocks,
            max_model_len=100,
            resume=resume,
        ),
        Settings(
            scheduling=Scheduling(policy=policy, bucket_tokens=10),
            preemption=Preemption(hysteresis=hysteresis, max_per_request=cap),
        ),
        reserve,
    ),
    st.integers(1, 4),
    st.integers(25, 60),
    st.sampled_from(["recompute", "copy"]),
    st.sampled_from(["fcfs", "sjf", "gittins", "sagesched"]),
    st.sampled_from([0.0, 0.5]),
    st.integers(0, 2),
    st.none() | st.just(0.0),
)


def made(limits: EngineLimits, settings: Settings, kv_reserve: float | None = None) -> OrderedEngine:
    ranking = Ranking(settings, stopping=Stopping.BOUNDARIES, dimensions=2)
    for number in range(20):
        known = Request(id=f"known{number}", prompt_tokens=20)
        ranking.learn(known, SHORT, Outcome(output_tokens=2 + number % 3))
        ranking.learn(known, LONG, Outcome(output_tokens=40 + number))
    return OrderedEngine(PROFILE, limits, ranking, kv_reserve)


def enter(engine: OrderedEngine, name: str, prompt: int, output: int, short: bool = True) -> None:
    ask = Request(id=name, prompt_tokens=prompt, arrival_s=engine.now_s)
    request = EngineRequest(id=name, prompt_tokens=prompt, output_tokens=output, max_tokens=1000)
    engine.enter(request, ask, SHORT if short else LONG)


def steps(engine: OrderedEngine) -> list[StepResult]:
    """To the end."""
    results = []
    while engine.has_work:
        results.append(engine.step())
        assert len(results) < 20_000, "the engine does not come to an end"
    return results


@settings(max_examples=120, deadline=None)
@given(engines, plans)
def test_every_request_ends_once_with_its_tokens_and_nothing_is_left(engine: OrderedEngine, plan: list) -> None:
    emitted: Counter[str] = Counter()
    ended: dict[str, int] = {}
    step = 0
    while step <= 60 or engine.has_work:
        for number, (prompt, output, short, arrives, leaves) in enumerate(plan):
            if arrives == step:
                enter(engine, f"r{number}", prompt, output, short)
            if leaves == step and (generated := engine.abort(f"r{number}")) is not None:
                ended[f"r{number}"] = generated
        if engine.has_work:
            result = engine.step()
            emitted.update(result.emitted)
            for one in result.finished:
                assert one.id not in ended
                assert one.output_tokens == plan[int(one.id[1:])][1]
                ended[one.id] = one.output_tokens
        step += 1
        assert step < 20_000, "the engine does not come to an end"
    assert ended == {f"r{number}": emitted[f"r{number}"] for number in range(len(plan))}
    assert engine.blocks.used == engine.running_count == engine.waiting_count == 0
    assert engine.ranking.tickets() == []


def crowded(limits: EngineLimits, **rule: object) -> tuple[OrderedEngine, list[StepResult]]:
    """Two long answers hold both places, and then a line of short ones comes."""
    engine = made(limits, Settings(preemption=Preemption(**rule)))  # type: ignore[arg-type]
    for number in range(2):
        enter(engine, f"long{number}", 20, 60, short=False)
    first = engine.step()
    for number in range(60):
        enter(engine, f"short{number}", 20, 3)
    return engine, [first, *steps(engine)]


LIMITS = EngineLimits(max_num_seqs=2, max_num_batched_tokens=64, block_size=4, num_blocks=100, max_model_len=200)


def test_a_long_line_of_short_ones_takes_a_long_one_s_place_and_all_end_sooner() -> None:
    kept, without = crowded(LIMITS, enabled=False)
    ruled, results = crowded(LIMITS)
    victims = Counter(name for one in results for name in one.preempted)
    assert set(victims) == {"long0", "long1"}
    assert max(victims.values()) == 1, "the cap"
    assert kept.decisions.keys() == {"off"}
    assert ruled.decisions["slots"] == 2
    assert results[1].admitted[0].startswith("short"), "the place is filled in the same step"
    assert mean_end_s(results) < 0.8 * mean_end_s(without)


def test_where_memory_is_short_one_gives_way_for_it() -> None:
    limits = EngineLimits(**{**as_fields(LIMITS), "max_num_seqs": 8, "num_blocks": 26, "max_model_len": 100})
    kept, without = crowded(limits, enabled=False)
    ruled, results = crowded(limits)
    assert ruled.decisions["kv"] >= 1
    assert kept.decisions.keys() == {"off"}
    assert mean_end_s(results) < mean_end_s(without)


def test_a_dear_resume_and_a_cap_of_none_keep_every_place() -> None:
    _, capped = crowded(LIMITS, max_per_request=0)
    _, dear = crowded(LIMITS, hysteresis=100.0)
    assert not any(one.preempted for one in (*capped, *dear))


@pytest.mark.parametrize(("resume", "again"), [("recompute", True), ("copy", False)])
def test_what_was_computed_is_computed_again_or_copied(resume: str, again: bool) -> None:
    _, results = crowded(EngineLimits(**{**as_fields(LIMITS), "resume": resume}))
    assert any(one.preempted for one in results)
    computed = sum(one.prefill_tokens + one.decode_sequences for one in results)
    least = sum(one.output_tokens - 1 + 20 for result in results for one in result.finished)
    assert (computed > least) == again
    assert computed >= least


def test_who_goes_next_is_the_ranking_s_to_say() -> None:
    engine = made(EngineLimits(**{**as_fields(LIMITS), "max_num_seqs": 1}), Settings())
    enter(engine, "running", 20, 30)
    engine.step()
    enter(engine, "long", 20, 50, short=False)
    enter(engine, "short", 20, 3)
    assert [name for one in steps(engine) for name in one.admitted] == ["short", "long"]


def as_fields(limits: EngineLimits) -> dict[str, object]:
    return {name: getattr(limits, name) for name in limits.__struct_fields__}


def mean_end_s(results: list[StepResult]) -> float:
    now_s, ends_s = 0.0, []
    for result in results:
        now_s += result.duration_s
        ends_s += [now_s] * len(result.finished)
    return sum(ends_s) / len(ends_s)
