"""Arrivals: the stated rate exactly, the stated burstiness, ascending."""

import numpy as np
import pytest

from sagesched_sim.workload.arrivals import arrivals_named, bursts, bursty, poisson


@pytest.mark.parametrize(("rate_per_s", "cv"), [(3.0, 1.0), (0.5, 2.0), (20.0, 3.0)])
def test_rate_and_burstiness_are_as_stated(rate_per_s: float, cv: float) -> None:
    count = 40_000
    times = bursty(rate_per_s, count, cv, np.random.default_rng(1))
    gaps = np.diff(times)
    assert times[0] == 0
    assert times[-1] == pytest.approx((count - 1) / rate_per_s)
    assert (gaps >= 0).all()
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.1)


def test_poisson_has_the_variation_of_exponential_gaps() -> None:
    gaps = np.diff(poisson(2.0, 40_000, np.random.default_rng(2)))
    assert gaps.std() / gaps.mean() == pytest.approx(1, rel=0.05)


def test_bursts_hold_their_share_in_their_window_and_keep_the_rate() -> None:
    count = 30_000
    times = bursts(5.0, count, np.random.default_rng(3), number=3, window=0.15, share=0.85)
    assert (np.diff(times) >= 0).all()
    assert times[-1] == pytest.approx(count / 5.0, rel=0.01)
    place = times / (count / 5.0) * 3 % 1
    assert np.mean(place < 0.15) == pytest.approx(0.85, abs=0.01)


@pytest.mark.parametrize("wrong", [{"number": 0}, {"window": 1.0}, {"share": 1.1}])
def test_impossible_bursts_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="arrivals need"):
        bursts(1.0, 5, np.random.default_rng(0), **wrong)  # type: ignore[arg-type]


def test_one_arrival_is_at_once() -> None:
    assert bursty(1.0, 1, 2.0, np.random.default_rng(0)).tolist() == [0.0]


def test_same_seed_same_arrivals() -> None:
    first, second = (bursty(1.0, 100, 2.0, np.random.default_rng(5)) for _ in range(2))
    assert (first == second).all()


@pytest.mark.parametrize("wrong", [(0.0, 5, 1.0), (1.0, 0, 1.0), (1.0, 5, 0.0)])
def test_impossible_arrivals_are_refused(wrong: tuple[float, int, float]) -> None:
    with pytest.raises(ValueError, match="arrivals need"):
        bursty(*wrong, np.random.default_rng(0))


@pytest.mark.parametrize("name", ["poisson", "gamma:2", "bursts:3/0.2/0.8"])
def test_named_arrivals_keep_the_rate(name: str) -> None:
    times = arrivals_named(name)(4.0, 8000, np.random.default_rng(3))
    assert times.size == 8000
    assert times[-1] == pytest.approx(2000, rel=0.02)


@pytest.mark.parametrize("name", ["", "poisson:1", "gamma", "gamma:fast", "bursts:3", "tides:1/2/3"])
def test_unknown_arrivals_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"choose poisson, gamma:CV or bursts"):
        arrivals_named(name)
