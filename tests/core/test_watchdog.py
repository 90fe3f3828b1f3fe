"""The watchdog of the scheduler inside the engine: what is trouble, what is none, and when it is over."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagesched.watchdog import MIN_PREEMPTIONS, REST, Progress, Watchdog

LAW = settings(max_examples=60, deadline=None)
WINDOW_S = 10.0
gaps = st.lists(st.floats(0.001, WINDOW_S), min_size=1, max_size=40)


@LAW
@given(st.lists(st.tuples(st.floats(0.001, 1000), st.integers(0, 1), st.integers(1, 50)), max_size=40))
def test_a_step_that_moves_is_no_stall_however_long_it_took(steps: list[tuple[float, int, int]]) -> None:
    dog, now_s, tokens = Watchdog(WINDOW_S), 0.0, 0
    for gap_s, ended, more in steps:
        now_s, tokens = now_s + gap_s, tokens + more
        assert not dog.look(now_s, 3, Progress(tokens, ended, 0))
    assert dog.trouble is None


@LAW
@given(gaps)
def test_no_progress_is_trouble_once_the_window_is_over_and_not_before(steps: list[float]) -> None:
    dog, now_s = Watchdog(WINDOW_S), 100.0
    dog.look(now_s, 1, Progress(7, 0, 0))
    for gap_s in steps:
        now_s += gap_s
        dog.look(now_s, 1, Progress(7, 0, 0))
        assert dog.trouble == ("stalled" if now_s - 100.0 > WINDOW_S else None)


@LAW
@given(gaps, st.floats(0, 1e6))
def test_an_engine_without_requests_does_not_stall(steps: list[float], idle_s: float) -> None:
    dog, now_s = Watchdog(WINDOW_S), 0.0
    for gap_s in steps:
        now_s += gap_s
        assert not dog.look(now_s, 0, Progress(7, 1, 0))
    assert not dog.look(now_s, 1, Progress(7, 1, 0))
    assert not dog.look(now_s + idle_s, 1, Progress(7, 2, 0)), "one left, and then long nothing was asked for"


@pytest.mark.parametrize(
    ("preemptions", "ended", "trouble"),
    [
        (MIN_PREEMPTIONS, MIN_PREEMPTIONS - 1, "thrashing"),
        (MIN_PREEMPTIONS, MIN_PREEMPTIONS, None),
        (MIN_PREEMPTIONS - 1, 0, None),
        (100, 99, "thrashing"),
        (0, 0, None),
    ],
)
def test_preempting_more_than_ending_in_a_window_is_thrashing(
    preemptions: int, ended: int, trouble: str | None
) -> None:
    dog = Watchdog(WINDOW_S)
    dog.look(0.0, 5, Progress(0, 100, 1000))
    assert not dog.look(WINDOW_S, 5, Progress(1, 100 + ended, 1000 + preemptions)), "the window is not over yet"
    dog.look(WINDOW_S + 1, 5, Progress(2, 100 + ended, 1000 + preemptions))
    assert dog.trouble == trouble


def test_it_is_over_after_a_rest_with_progress_and_may_come_again() -> None:
    dog = Watchdog(WINDOW_S)
    dog.look(0.0, 1, Progress(0, 0, 0))
    assert dog.look(WINDOW_S + 1, 1, Progress(0, 0, 0)), "told once"
    assert not dog.look(WINDOW_S + 2, 1, Progress(0, 0, 0))
    last_s = WINDOW_S + 2
    assert not dog.look(last_s + REST * WINDOW_S - 1, 1, Progress(1, 0, 0)), "the rest is not over"
    assert dog.trouble == "stalled"
    assert dog.look(last_s + REST * WINDOW_S, 1, Progress(2, 0, 0))
    assert dog.trouble is None
    assert dog.look(last_s + (REST + 2) * WINDOW_S, 1, Progress(2, 0, 0))


def test_the_rest_does_not_end_while_nothing_moves() -> None:
    dog = Watchdog(WINDOW_S)
    for step in range(200):
        dog.look(step * WINDOW_S / 2, 1, Progress(0, 0, 0))
    assert dog.trouble == "stalled"
