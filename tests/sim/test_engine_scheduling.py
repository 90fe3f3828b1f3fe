"""What the engine does in small cases that can be followed by hand."""

import pytest

from sagesched_sim.engine import Engine, EngineLimits, EngineRequest
from sagesched_sim.profile import profile_named

PROFILE = profile_named("llama-3.1-8b-rtx4090")


def engine(**limits: object) -> Engine:
    given = {"block_size": 4, "num_blocks": 16, "max_model_len": 64, "max_num_seqs": 4, "max_num_batched_tokens": 32}
    return Engine(PROFILE, EngineLimits(**(given | limits)))  # type: ignore[arg-type]


def request(name: str, prompt: int, output: int, **fields: float) -> EngineRequest:
    given = {"max_tokens": 1000, "priority": 0, "arrival_s": 0.0} | fields
    return EngineRequest(id=name, prompt_tokens=prompt, output_tokens=output, **given)  # type: ignore[arg-type]


def test_a_long_prompt_is_computed_in_chunks_beside_a_decoding_one() -> None:
    sut = engine(max_num_batched_tokens=8, num_blocks=32, max_model_len=100)
    sut.submit(request("short", 4, 9))
    assert sut.step().emitted == ["short"]
    sut.submit(request("long", 20, 2))
    steps = [sut.step() for _ in range(3)]
    assert [(one.prefill_tokens, one.decode_sequences) for one in steps] == [(7, 1), (7, 1), (6, 1)]
    assert [one.emitted for one in steps] == [["short"], ["short"], ["short", "long"]]


def test_the_last_admitted_is_preempted_and_recomputes_what_it_had() -> None:
    sut = engine(num_blocks=5, max_model_len=20)
    sut.submit(request("first", 8, 8))
    sut.submit(request("second", 8, 8))
    assert sut.step().admitted == ["first", "second"]
    second = sut.step()  # "first" takes the fifth block, "second" finds none.
    assert second.preempted == ["second"]
    assert second.emitted == ["first"]
    results = [second]
    while sut.has_work:
        results.append(sut.step())
    back = next(one for one in results if one.admitted == ["second"])
    assert back.prefill_tokens == 9, "its prompt of 8 and the token that it had"
    assert [one.id for result in results for one in result.finished] == ["first", "second"]
    assert results[-1].finished[0].preemptions == 1


def test_a_preempted_sequence_returns_to_the_head_under_fcfs() -> None:
    sut = engine(num_blocks=5, max_model_len=20)
    for name in ("first", "second"):
        sut.submit(request(name, 8, 8))
    sut.step()
    sut.submit(request("third", 4, 1))
    admitted = []
    while sut.has_work:
        admitted += sut.step().admitted
    assert admitted == ["second", "third"]


def test_priority_orders_the_waiting_and_chooses_the_victim() -> None:
    sut = engine(policy="priority", num_blocks=5, max_model_len=20, max_num_seqs=2)
    sut.submit(request("worst", 8, 8, priority=5, arrival_s=1))
    sut.submit(request("later", 8, 8, priority=1, arrival_s=3))
    sut.submit(request("best", 8, 8, priority=1, arrival_s=2))
    assert sut.step().admitted == ["best", "later"]
    assert sut.step().preempted == ["later"], "same priority, later arrival"
    order = []
    while sut.has_work:
        order += [one.id for one in sut.step().finished]
    assert order == ["best", "later", "worst"]


def test_a_victim_that_was_scheduled_in_the_same_step_gives_its_tokens_back() -> None:
    sut = engine(policy="priority", num_blocks=5, max_model_len=20, max_num_seqs=2)
    sut.submit(request("low", 7, 8, priority=9))
    sut.step()
    sut.submit(request("high", 8, 8, priority=0))
    assert sut.step().admitted == ["high"]
    result = sut.step()
    assert (result.preempted, result.emitted) == (["low"], ["high"])
    assert (result.prefill_tokens, result.decode_sequences) == (0, 1)


def test_when_one_before_it_is_preempted_nobody_is_skipped() -> None:
    sut = engine(policy="priority", num_blocks=6, max_model_len=24)
    sut.submit(request("low", 6, 9, priority=9))
    sut.step()
    sut.submit(request("high", 8, 9, priority=0))
    sut.submit(request("third", 5, 9, priority=1))
    assert sut.step().admitted == ["high", "third"]
    result = sut.step()
    assert (result.preempted, result.emitted) == (["low"], ["high", "third"])


def test_the_budget_of_a_victim_goes_to_those_after_it() -> None:
    sut = engine(policy="priority", num_blocks=7, max_model_len=28, max_num_batched_tokens=4)
    sut.submit(request("low", 1, 20, priority=9))
    sut.step()
    sut.submit(request("high", 3, 20, priority=0))
    sut.step()
    sut.submit(request("third", 14, 9, priority=1))
    prefilled = []
    while not (result := sut.step()).preempted:
        prefilled.append(result.prefill_tokens)
    assert (prefilled, result.preempted, result.prefill_tokens) == ([2] * 5, ["low"], 3)


def test_nobody_is_admitted_before_all_of_its_prompt_fits() -> None:
    sut = engine(num_blocks=5, max_model_len=20, max_num_batched_tokens=4)
    sut.submit(request("first", 12, 2))
    sut.step()
    sut.submit(request("second", 12, 2))
    assert sut.step().admitted == []
    assert sut.waiting_count == 1


@pytest.mark.parametrize(
    ("output", "cap", "expected"),
    [(3, 5, ("stop", 3)), (5, 5, ("stop", 5)), (6, 5, ("length", 5)), (50, 50, ("length", 12))],
)
def test_endings(output: int, cap: int, expected: tuple[str, int]) -> None:
    sut = engine(num_blocks=5, max_model_len=20)
    sut.submit(request("r", 8, output, max_tokens=cap))
    finished = []
    while sut.has_work:
        finished += sut.step().finished
    assert [(one.reason, one.output_tokens) for one in finished] == [expected]


def test_refusals_name_the_field() -> None:
    sut = engine(num_blocks=5, max_model_len=20)
    with pytest.raises(ValueError, match="prompt_tokens: 20 leave no room"):
        sut.submit(request("r", 20, 1))
    sut.submit(request("r", 2, 1))
    with pytest.raises(ValueError, match="id: 'r' is already"):
        sut.submit(request("r", 2, 1))
    with pytest.raises(ValueError, match="output_tokens: 0 given for request q"):
        request("q", 2, 0)


def test_abort_of_waiting_running_and_unknown() -> None:
    sut = engine(max_num_seqs=1)
    sut.submit(request("runs", 8, 8))
    sut.submit(request("waits", 8, 8))
    sut.step()
    assert (sut.abort("waits"), sut.abort("runs"), sut.abort("runs")) == (0, 1, None)
    assert not sut.has_work
    assert sut.blocks.used == 0


def test_a_fuller_batch_takes_longer_steps() -> None:
    durations = []
    for count in (1, 4, 16):
        sut = engine(max_num_seqs=16, num_blocks=100)
        for number in range(count):
            sut.submit(request(str(number), 8, 8, max_tokens=8))
        while (result := sut.step()).prefill_tokens:
            pass
        durations.append(result.duration_s)
    assert durations == sorted(set(durations))
