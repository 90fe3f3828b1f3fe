"""Laws of the time unit."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagesched.calibration import ServiceUnit, Unit

LAW = settings(max_examples=60, deadline=None)


@LAW
@given(st.floats(1, 1e9), st.floats(1e-3, 100), st.floats(1e-3, 1), st.integers(20, 80))
def test_a_steady_engine_is_learnt(cost: float, seconds: float, token_s: float, served: int) -> None:
    unit, now = ServiceUnit(), 1000.0
    unit.busy(True, now)
    for _ in range(served):
        now += seconds
        unit.completion(cost, token_s, now)
    assert unit.unit() == pytest.approx((cost, seconds, token_s), rel=1e-6)


@LAW
@given(st.lists(st.tuples(st.floats(0, 1e9), st.floats(0, 10), st.floats(-5, 100), st.booleans()), max_size=40))
def test_it_is_positive_whatever_happened(events: list[tuple[float, float, float, bool]]) -> None:
    """Also with clocks that step back and nothing served."""
    unit, now = ServiceUnit(), 0.0
    for cost, token_s, seconds, waiting in events:
        now += seconds
        unit.predicted(cost)
        unit.busy(waiting, now)
        unit.completion(cost, token_s, now)
        made = unit.unit()
        assert made.mean_cost > 0
        assert made.mean_service_s > 0
        assert made.token_s >= 0
        assert made.is_near(made, 1.01)


def test_an_idle_engine_says_nothing_of_its_speed() -> None:
    unit, now = ServiceUnit(), 0.0
    for _ in range(50):
        now += 3600
        unit.completion(10.0, 2.0, now)
    assert unit.unit() == pytest.approx((10.0, 1.0, 2.0))
    unit.busy(True, now)
    for _ in range(50):
        now += 2
        unit.completion(10.0, 2.0, now)
    assert unit.unit().mean_service_s == pytest.approx(2)


def test_a_pause_in_which_nobody_waits_does_not_count() -> None:
    unit, now = ServiceUnit(), 0.0
    for _ in range(50):
        unit.busy(True, now)
        unit.busy(False, now + 1)
        now += 1000
        unit.busy(True, now)
        now += 2
        unit.completion(10.0, 2.0, now)
        unit.busy(False, now)
    assert unit.unit().mean_service_s == pytest.approx(3)


def test_before_anything_was_served_predictions_give_the_cost() -> None:
    unit = ServiceUnit()
    assert unit.unit() == Unit(1.0, 1.0, 0.0)
    unit.predicted(30.0)
    assert unit.unit().mean_cost == 30.0


def test_a_change_of_speed_is_followed() -> None:
    unit, now = ServiceUnit(), 0.0
    unit.busy(True, now)
    for seconds in [1.0] * 300 + [3.0] * 300:
        now += seconds
        unit.completion(1.0, 1.0, now)
    assert unit.unit().mean_service_s == pytest.approx(3, rel=0.05)


@LAW
@given(st.floats(1, 1e6), st.floats(1, 1e6), st.floats(1.01, 2))
def test_nearness_is_symmetric(one: float, other: float, factor: float) -> None:
    a, b = Unit(one, 1.0), Unit(other, 1.0)
    if abs(max(one, other) / min(one, other) - factor) > 1e-6:
        assert a.is_near(b, factor) == b.is_near(a, factor) == (max(one, other) / min(one, other) < factor)
