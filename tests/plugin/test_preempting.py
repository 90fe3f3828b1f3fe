"""Places that are taken away: only where core's rule says that it pays, and nobody is lost by it."""

from typing import Any

import pytest
from model_scheduler import ModelScheduler, hint

from sagesched.settings import Preemption, Scheduling, Settings, decode
from sagesched_vllm.counters import FALLBACK, FALLBACK_STEPS, PREEMPTED, REFRESHED
from sagesched_vllm.pace import MIN_SAMPLES, PREFILL_SHARE, PaceMeter
from sagesched_vllm.room import Capacity


def settings(**rule: Any) -> Settings:
    return Settings(scheduling=Scheduling(boost=0), preemption=Preemption(**rule))


def behind_long_ones(engine: ModelScheduler) -> ModelScheduler:
    """Both slots run for long when short requests come."""
    for name in ("long0", "long1"):
        engine.add(name, 400, extra_args=hint(400.0))
    for _ in range(20):
        engine.step()
    for number in range(6):
        engine.add(f"short{number}", 10, extra_args=hint(10.0))
    return engine


def test_a_long_one_gives_its_place_to_short_ones_and_ends_all_the_same() -> None:
    engine = behind_long_ones(ModelScheduler(slots=2, settings=settings()))
    engine.step()
    assert len(engine.gave_way) == 1
    assert "short0" in {request.request_id for request in engine.running}, "the place is filled in the same step"
    engine.drain()
    assert sorted(engine.ended[-2:]) == ["long0", "long1"]
    assert engine.sage.counters.total(PREEMPTED, "slots") == len(engine.gave_way) <= 2, "each at most once"
    assert engine.sage.counters.total(PREEMPTED, "memory") == 0
    assert engine.sage.counters.total(FALLBACK_STEPS) == 0


@pytest.mark.parametrize("rule", [{"enabled": False}, {"max_per_request": 0}, {"hysteresis": 100.0}])
def test_nobody_gives_way_where_the_settings_say_so(rule: dict[str, Any]) -> None:
    engine = behind_long_ones(ModelScheduler(slots=2, settings=settings(**rule)))
    engine.drain()
    assert engine.gave_way == []


def test_nobody_gives_way_to_one_that_is_as_long() -> None:
    engine = ModelScheduler(slots=2, settings=settings())
    for number in range(8):
        engine.add(f"r{number}", 100, extra_args=hint(100.0))
    engine.drain()
    assert engine.gave_way == []


def test_under_pressure_of_memory_as_many_give_way_as_are_needed() -> None:
    engine = ModelScheduler(
        slots=8, blocks=30, settings=decode({"scheduling": {"boost": 0}, "engine": {"kvReserve": 0}})
    )
    engine.add("long", 400, extra_args=hint(400.0))
    for _ in range(20):
        engine.step()
    for number in range(40):
        engine.add(f"short{number}", 60, extra_args=hint(60.0))
    engine.drain()
    assert engine.gave_way == ["long"]
    assert engine.ended[-1] == "long"
    assert engine.sage.counters.total(PREEMPTED, "kv") == 1


def test_who_started_by_the_starvation_bound_keeps_its_place() -> None:
    engine = ModelScheduler(slots=1, settings=Settings(scheduling=Scheduling(boost=0, max_wait_seconds=5)))
    engine.add("first", 60, extra_args=hint(60.0))
    engine.step()
    engine.add("old", 400, extra_args=hint(400.0))
    for number in range(300):
        if number % 10 == 0:
            engine.add(f"short{number}", 9, extra_args=hint(9.0))
        engine.step()
    assert "old" in engine.started
    assert "old" not in engine.gave_way


def test_thrashing_is_first_come_first_served_until_it_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ModelScheduler(slots=2, settings=settings(watchdog_seconds=1.0, max_per_request=1000))
    for number in range(4):
        engine.add(f"r{number}", 2000, extra_args=hint(100.0))

    def always() -> Any:
        return "slots", engine.running[-1:]

    monkeypatch.setattr(engine.sage.preempting, "victims", always)
    for _ in range(40):
        engine.step()
    assert engine.sage.counters.states[FALLBACK,] == 1
    assert engine.sage.counters.total(FALLBACK_STEPS, "thrashing") > 0
    taken = len(engine.gave_way)
    for _ in range(20):
        engine.step()
    assert len(engine.gave_way) == taken, "no place is taken away meanwhile"
    monkeypatch.undo()
    engine.drain()
    assert engine.sage.counters.states[FALLBACK,] == 0


def test_a_stall_is_noticed() -> None:
    engine = ModelScheduler(slots=1, settings=settings(watchdog_seconds=2.0))
    engine.add("stuck", 10)
    engine.blocked = {"stuck"}
    for _ in range(50):
        engine.step()
    assert engine.sage.watchdog.trouble == "stalled"
    engine.blocked = set()
    engine.drain()
    assert engine.ended == ["stuck"]


def test_the_pace_is_that_of_plain_steps_and_of_what_prompts_add() -> None:
    meter, capacity, now_s = PaceMeter(), Capacity(8, 1000, 16), 0.0
    assert meter.pace(capacity, 1000.0)[2:4] == (1.0, PREFILL_SHARE)
    for number in range(6 * MIN_SAMPLES):
        prompt = 50 if number % 3 == 2 else 0
        meter.step(now_s)
        meter.scheduled(4 + prompt, 4)
        now_s += 0.02 + 0.001 * prompt
    pace = meter.pace(capacity, 1000.0)
    assert (pace.token_s, pace.recompute_token_s) == (pytest.approx(0.02), pytest.approx(0.001))
    meter.scheduled(0, 0)
    meter.step(now_s + 1000)
    assert meter.pace(capacity, 1000.0) == pace, "an engine without work tells nothing of its pace"


@pytest.mark.parametrize(("bucket", "order", "refreshed"), [(50, ["b", "a"], 9), (100_000, ["a", "b"], 0)])
def test_the_bucket_decides_when_a_belief_is_looked_at_again(bucket: int, order: list[str], refreshed: int) -> None:
    """By hand, C(O) = 10 O + O^2/2. A ends at 10 tokens (C = 150) nine times of ten, else at 400 (84,000); B at 150
    (12,750). Without a boundary A's index is its mean, 8,535, for good. With one at 50 (1,750) it is
    (0.9 * 150 + 0.1 * 1,750) / 0.9 = 344 at first and 82,250 from there on, and A gives way."""
    engine = ModelScheduler(slots=1, blocks=66, settings=Settings(scheduling=Scheduling(boost=0, bucket_tokens=bucket)))
    told = hint(10.0, 400.0, weights=(0.9, 0.1))
    engine.add("a", 400, num_prompt_tokens=10, max_tokens=400, extra_args=told)
    for _ in range(10):
        engine.step()
    engine.add("b", 150, num_prompt_tokens=10, max_tokens=150, extra_args=hint(150.0))
    engine.drain()
    assert engine.ended == order
    assert engine.sage.counters.total(REFRESHED) == refreshed, "A at 50, 100 ... 350, and B at 50 and 100"
