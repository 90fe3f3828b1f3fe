"""Laws of the engine under random submits, aborts and tiny KV caches."""

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagesched_sim.engine import Engine, EngineLimits, EngineRequest, StepResult
from sagesched_sim.profile import profile_named

PROFILE = profile_named("llama-3.1-8b-rtx4090")

limits_strategy = st.builds(
    lambda seqs, batched, block, blocks, policy, share: EngineLimits(
        max_num_seqs=seqs,
        max_num_batched_tokens=batched,
        block_size=block,
        num_blocks=blocks,
        max_model_len=max(2, int(blocks * block * share)),
        policy=policy,
    ),
    st.integers(1, 6),
    st.integers(1, 40),
    st.sampled_from([1, 4, 16]),
    st.integers(4, 30),
    st.sampled_from(["fcfs", "priority"]),
    st.floats(0.5, 1.0),
)
plans = st.lists(
    st.tuples(
        st.integers(1, 60),  # prompt tokens
        st.integers(1, 40),  # true output tokens
        st.integers(1, 40),  # max_tokens
        st.integers(-2, 2),  # priority
        st.integers(0, 10),  # step before which it arrives
        st.none() | st.integers(1, 30),  # step before which it is aborted
    ),
    min_size=1,
    max_size=12,
)


@dataclass
class Run:
    engine: Engine
    requests: dict[str, EngineRequest] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    aborted: dict[str, int] = field(default_factory=dict)
    results: list[StepResult] = field(default_factory=list)


def play(limits: EngineLimits, plan: list[tuple[int, int, int, int, int, int | None]]) -> Run:
    """Runs a plan to its end, looking at the bounds after every step."""
    run = Run(Engine(PROFILE, limits))
    step = 0
    while step <= 30 or run.engine.has_work:
        for number, (prompt, output, cap, priority, arrives, leaves) in enumerate(plan):
            name = f"r{number}"
            if arrives == step:
                submit(run, name, prompt, output, cap, priority, float(arrives))
            if leaves == step and (generated := run.engine.abort(name)) is not None:
                run.aborted[name] = generated
        if run.engine.has_work:
            run.results.append(run.engine.step())
            check_bounds(run)
        step += 1
        assert step < 20_000, "the engine does not come to an end"
    return run


def submit(run: Run, name: str, prompt: int, output: int, cap: int, priority: int, arrival_s: float) -> None:
    request = EngineRequest(
        id=name, prompt_tokens=prompt, output_tokens=output, max_tokens=cap, priority=priority, arrival_s=arrival_s
    )
    try:
        run.engine.submit(request)
        run.requests[name] = request
    except ValueError:
        run.refused.append(name)


def check_bounds(run: Run) -> None:
    engine, result = run.engine, run.results[-1]
    assert engine.running_count <= engine.limits.max_num_seqs
    assert 0 <= engine.blocks.used <= engine.blocks.total
    computed = result.prefill_tokens + result.decode_sequences
    assert computed <= engine.limits.max_num_batched_tokens
    # As in vLLM, a step may do nothing but preempt, when the worst sequence is the oldest and finds no block.
    assert computed > 0 or result.preempted
    assert (result.duration_s > 0) == (computed > 0)
    assert len(set(result.emitted)) == len(result.emitted), "one token a sequence and step"
    assert not (result.preempted and result.admitted), "a step that preempts admits nobody"


def ending(request: EngineRequest, limits: EngineLimits) -> tuple[str, int]:
    cap = min(request.max_tokens, limits.max_model_len - request.prompt_tokens)
    tokens = min(request.output_tokens, cap)
    return ("stop" if request.output_tokens <= cap else "length"), tokens


@settings(max_examples=150, deadline=None)
@given(limits_strategy, plans)
def test_every_request_ends_once_with_its_tokens_and_all_blocks_come_back(limits: EngineLimits, plan: list) -> None:
    run = play(limits, plan)
    emitted = Counter(name for result in run.results for name in result.emitted)
    finished = [one for result in run.results for one in result.finished]
    assert len({one.id for one in finished}) == len(finished)
    for one in finished:
        assert (one.reason, one.output_tokens) == ending(run.requests[one.id], limits)
        assert emitted[one.id] == one.output_tokens
    for name, generated in run.aborted.items():
        assert emitted[name] == generated
    assert {one.id for one in finished} | set(run.aborted) == set(run.requests)
    assert not {one.id for one in finished} & set(run.aborted)
    assert run.engine.blocks.used == run.engine.running_count == run.engine.waiting_count == 0


@settings(max_examples=60, deadline=None)
@given(limits_strategy, plans)
def test_same_calls_same_results(limits: EngineLimits, plan: list) -> None:
    assert play(limits, plan).results == play(limits, plan).results


@settings(max_examples=80, deadline=None)
@given(limits_strategy, plans)
def test_work_is_conserved_where_nothing_is_thrown_away(limits: EngineLimits, plan: list) -> None:
    roomy = EngineLimits(
        max_num_seqs=limits.max_num_seqs,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        block_size=limits.block_size,
        num_blocks=5000,
        max_model_len=1000,
        policy=limits.policy,
    )
    run = play(roomy, [(*one[:5], None) for one in plan])
    assert not any(result.preempted for result in run.results)
    outputs = [ending(request, roomy)[1] for request in run.requests.values()]
    computed = sum(result.prefill_tokens + result.decode_sequences for result in run.results)
    assert computed == sum(request.prompt_tokens for request in run.requests.values()) + sum(outputs) - len(outputs)


@settings(max_examples=80, deadline=None)
@given(limits_strategy, plans)
def test_recomputing_only_adds_work(limits: EngineLimits, plan: list) -> None:
    run = play(limits, [(*one[:5], None) for one in plan])
    outputs = [ending(request, limits)[1] for request in run.requests.values()]
    computed = sum(result.prefill_tokens + result.decode_sequences for result in run.results)
    least = sum(request.prompt_tokens for request in run.requests.values()) + sum(outputs) - len(outputs)
    preempted = any(result.preempted for result in run.results)
    assert computed > least if preempted else computed == least


@pytest.mark.parametrize("field", ["max_num_seqs", "max_num_batched_tokens", "block_size", "num_blocks"])
def test_limits_name_the_field(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field}: 0"):
        EngineLimits(**{field: 0})


def test_a_model_length_beyond_the_cache_is_refused() -> None:
    with pytest.raises(ValueError, match=r"max_model_len: 65 .* 64 tokens"):
        EngineLimits(block_size=16, num_blocks=4, max_model_len=65)
