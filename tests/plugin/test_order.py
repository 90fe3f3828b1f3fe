"""The scheduler inside the engine: who starts, who is evicted, and that no trouble of ours loses a request."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from model_scheduler import ModelScheduler, hint

from sagesched.engine_priority import class_priority
from sagesched.settings import Preemption, Scheduling, Settings
from sagesched_vllm.counters import FALLBACK_STEPS, HELD_BACK, HINTS, INVERSIONS, REFRESHED

PLAIN = Settings(scheduling=Scheduling(boost=0), preemption=Preemption(enabled=False))
LENGTHS = {"a": 160, "b": 20, "c": 120, "d": 40, "e": 80}
BY_LENGTH = sorted(LENGTHS, key=LENGTHS.__getitem__)


def filled(engine: ModelScheduler) -> ModelScheduler:
    """With every slot taken for 10 steps."""
    for slot in range(engine.slots):
        engine.add(f"fill{slot}", 10)
    engine.step()
    return engine


def test_what_is_predicted_short_starts_first() -> None:
    engine = filled(ModelScheduler(slots=1, settings=PLAIN))
    for name, length in LENGTHS.items():
        engine.add(name, length, extra_args=hint(float(length)))
    engine.drain()
    assert engine.started[1:] == BY_LENGTH
    assert engine.sage.counters.total(INVERSIONS) == 4, "of five starts all but the last passed an older one"


def test_without_hints_and_history_the_prompt_decides_and_then_the_arrival() -> None:
    engine = filled(ModelScheduler(slots=1, settings=PLAIN))
    engine.add("long", 5, num_prompt_tokens=500)
    for name in ("first", "second"):
        engine.add(name, 5, num_prompt_tokens=10)
        engine.now_s += 1
    engine.drain()
    assert engine.started[1:] == ["first", "second", "long"]
    assert engine.sage.counters.total(HINTS, "absent") == 4


def test_priority_classes_come_before_any_length() -> None:
    engine = filled(ModelScheduler(slots=1, settings=PLAIN))
    engine.add("short", 5, extra_args=hint(5.0))
    engine.add("hinted", 500, extra_args=hint(500.0, priority=-1))
    engine.add("numbered", 5, priority=class_priority(-2) + 77)
    engine.add("batch", 5, extra_args=hint(5.0, priority=3))
    engine.add("small", 5, priority=-5)
    engine.drain()
    assert engine.started[1:4] == ["small", "numbered", "hinted"]
    assert engine.started[-1] == "batch"


def test_a_bad_hint_costs_the_prediction_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    engine = ModelScheduler(slots=1, settings=PLAIN)
    for number in range(3):
        engine.add(f"bad{number}", 5, extra_args=hint(5.0) | {"sagesched_lengths": [-1]})
    engine.drain()
    assert engine.ended == ["bad0", "bad1", "bad2"]
    assert engine.sage.counters.total(HINTS, "bad") == 3
    assert len([r for r in caplog.records if "cannot be used" in r.getMessage()]) == 1


def test_lengths_that_ended_teach_the_prior() -> None:
    engine = ModelScheduler(slots=4, settings=PLAIN)
    for number in range(80):
        engine.add(f"r{number}", 30)
    engine.drain()
    taught = engine.add("next", 30)
    assert engine.sage.order.held("next").ticket.belief.mean_tokens() < 60, "the bare prior says more than 300"
    assert taught.request_id in engine.sage.order.ranking.waiting()[0].request.id


def test_an_arrival_that_a_hint_tells_is_bounded() -> None:
    """Who sends hints past the sidecar gains no more than the oldest that may wait."""
    engine = ModelScheduler(settings=PLAIN)
    engine.add("old", 5, extra_args=hint(5.0, arrival_s=-1e9))
    engine.add("new", 5, extra_args=hint(5.0, arrival_s=1e12))
    arrivals = {name: engine.sage.order.held(name).ticket.request.arrival_s for name in ("old", "new")}
    assert arrivals == {"old": 1000.0 - PLAIN.queue.max_age_seconds, "new": 1000.0}


def test_the_worst_is_evicted_when_memory_runs_out() -> None:
    """All are predicted to fit, and do not. In the order of arrival the middle one, the last, would give way."""
    engine = ModelScheduler(slots=3, blocks=14, settings=PLAIN)
    for name, told in (("long", 40.0), ("short", 10.0), ("middle", 20.0)):
        engine.add(name, 70, extra_args=hint(told))
    engine.step()
    assert len(engine.running) == 3
    engine.drain()
    assert engine.preemptions == 1
    assert engine.ended == ["short", "middle", "long"]


def test_nobody_is_let_in_whose_peak_would_not_fit() -> None:
    held, free = {}, {}
    for lengths, told in (("known", 200.0), ("unknown", 1.0)):
        engine = ModelScheduler(slots=8, blocks=40, settings=PLAIN)
        for number in range(8):
            engine.add(f"r{number}", 200, extra_args=hint(told))
        engine.drain()
        held[lengths], free[lengths] = engine.sage.counters.total(HELD_BACK), engine.preemptions
    assert held["known"] > 0
    assert free["known"] == 0 < free["unknown"]


def test_a_request_alone_starts_however_large() -> None:
    engine = ModelScheduler(slots=2, blocks=4, settings=PLAIN)
    engine.add("huge", 3, extra_args=hint(100_000.0))
    engine.step()
    assert engine.started == ["huge"]


def test_crossing_a_boundary_refreshes_the_rank() -> None:
    for bucket, refreshed in ((10, 9), (50, 1), (1000, 0)):
        engine = ModelScheduler(settings=Settings(scheduling=Scheduling(boost=0, bucket_tokens=bucket)))
        engine.add("r", 100, extra_args=hint(5.0, 400.0))
        engine.drain()
        assert engine.sage.counters.total(REFRESHED) == refreshed


@pytest.mark.parametrize("as_before_0_31", [False, True])
def test_what_cannot_start_is_passed_over_and_keeps_its_place(as_before_0_31: bool) -> None:
    engine = filled(ModelScheduler(slots=1, settings=PLAIN, as_before_0_31=as_before_0_31))
    engine.blocked = {"a"}
    for name, length in (("a", 5), ("b", 6), ("c", 7)):
        engine.add(name, length, extra_args=hint(float(length)))
    for _ in range(12):
        engine.step()
    assert engine.started[1:] == ["b"]
    engine.blocked = set()
    engine.drain()
    assert engine.started[1:] == ["b", "a", "c"]


def test_other_settings_rank_what_is_held_anew_at_the_next_step() -> None:
    engine = filled(ModelScheduler(slots=1, settings=Settings(scheduling=Scheduling(policy="fcfs"))))
    for name, length in LENGTHS.items():
        engine.add(name, length, extra_args=hint(float(length)))
        engine.now_s += 1
    engine.step()
    assert [request.request_id for request in engine.waiting] == list(LENGTHS)
    engine.news.put(PLAIN)
    engine.step()
    assert [request.request_id for request in engine.waiting] == BY_LENGTH


@pytest.mark.parametrize("broken", ["peek", "waits", "started", "refresh", "sort", "ended", "tick", "put_back"])
def test_any_failure_of_ours_is_first_come_first_served_and_told(
    broken: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    engine = ModelScheduler(slots=2, blocks=30, settings=PLAIN)

    def fail(*_: Any) -> None:
        raise ZeroDivisionError("broken")

    monkeypatch.setattr(engine.sage.order, broken, fail)
    engine.blocked = {"r7"}
    for number in range(8):
        engine.add(f"r{number}", 30 - number, extra_args=hint(30.0 - number))
    for _ in range(20):
        engine.step()
    engine.blocked = set()
    engine.drain()
    assert sorted(engine.ended) == [f"r{number}" for number in range(8)]
    assert engine.sage.counters.total(FALLBACK_STEPS, "error") > 0
    assert 1 <= len([r for r in caplog.records if "failed" in r.getMessage()]) <= 3, "once for each kind"


def test_after_a_failure_the_order_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = filled(ModelScheduler(slots=1, settings=PLAIN))
    for name, length in LENGTHS.items():
        engine.add(name, length, extra_args=hint(float(length)))
    with monkeypatch.context() as patch:
        patch.setattr(engine.sage.order, "refresh", lambda: 1 / 0)
        engine.step()
        assert not engine.waiting.ordered
    engine.drain()
    assert engine.started[1:] == BY_LENGTH


@pytest.mark.parametrize("broken", ["waits", "started", "put_back"])
def test_who_was_lost_to_the_order_once_is_found_again(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It must not wait behind all that comes later."""
    engine = filled(ModelScheduler(slots=1, settings=PLAIN))
    engine.blocked = {"lost"} if broken == "put_back" else set()
    with monkeypatch.context() as patch:
        patch.setattr(engine.sage.order, broken, lambda *_: 1 / 0)
        engine.add("lost", 5, extra_args=hint(5.0))
        for _ in range(12 if broken != "waits" else 1):
            engine.step()
    engine.blocked = set()
    for number in range(30):
        engine.add(f"later{number}", 8, extra_args=hint(8.0))
    engine.drain()
    assert engine.started.index("lost") <= 2


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(1, 60), st.integers(1, 60), st.integers(1, 40)),
        st.tuples(st.just("abort"), st.integers(0, 30)),
        st.tuples(st.just("step"), st.integers(1, 20)),
        st.tuples(st.just("block"), st.integers(0, 30)),
        st.tuples(st.just("bucket"), st.integers(1, 300)),
    ),
    max_size=60,
)


@given(ACTIONS, st.integers(1, 5), st.integers(8, 40))
@settings(max_examples=30)
def test_every_request_ends_once_and_nothing_is_left(actions: list[Any], slots: int, blocks: int) -> None:
    engine = ModelScheduler(slots=slots, blocks=blocks)
    for what, *values in actions:
        if what == "add":
            length, told, prompt = values
            name = f"r{len(engine.started) + len(engine.requests) + len(engine.ended)}-{length}-{told}"
            if name not in engine.requests:
                more = {"extra_args": hint(float(told))} if told % 3 else {}
                engine.add(name, length, num_prompt_tokens=prompt, **more)
        elif what == "step":
            for _ in range(values[0]):
                engine.step()
        elif what == "bucket":
            engine.news.put(Settings(scheduling=Scheduling(bucket_tokens=values[0])))
        elif engine.requests:
            name = list(engine.requests)[values[0] % len(engine.requests)]
            engine.abort(name) if what == "abort" else engine.blocked.add(name)
    engine.blocked.clear()
    engine.drain()
    engine.step()
    assert len(engine.ended) == len(set(engine.ended))
    assert len(engine.sage.order) == len(engine.waiting) == len(engine.sage.order.running) == 0
    assert engine.sage.order.ranking.tickets() == []
    assert engine.sage.counters.total(FALLBACK_STEPS) == 0


def test_who_cannot_start_yet_takes_no_room_from_others() -> None:
    """One whose grammar is still compiled is taken out and put back in each step, before a smaller one behind it."""
    engine = ModelScheduler(slots=4, settings=PLAIN)
    engine.add("grammar", 60, extra_args=hint(60.0))
    engine.add("behind", 70, extra_args=hint(70.0))
    engine.sage.before()
    queue, running = engine.sage.queue, engine.sage.order.running
    assert queue.pop_request().request_id == "grammar"
    assert len(running) == 1, "until the engine asks for the next it may have started"
    assert queue, "the one behind is alone and may start"
    assert len(running) == 0
    assert queue.peek_request().request_id == "behind"
