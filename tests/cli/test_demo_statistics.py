"""Figures against hand-made examples, and their laws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagesched_cli.demo.calibration import calibrate
from sagesched_cli.demo.insight import Predicted
from sagesched_cli.demo.statistics import Summary, paired_ratios, ranks, spearman


def test_summary_of_a_hundred_and_one_values() -> None:
    assert Summary.of(np.arange(101.0)) == Summary(mean=50.0, p50=50.0, p95=95.0, p99=99.0, max=100.0)


def test_ranks_share_the_mean_of_ties() -> None:
    assert ranks(np.array([30.0, 10.0, 30.0, 20.0])).tolist() == [2.5, 0.0, 2.5, 1.0]


def test_spearman_of_a_hand_example() -> None:
    """1 - 6 * sum(d^2) / (n (n^2 - 1)) with d = 0, 1, 1, 1, 1: 1 - 24 / 120."""
    assert spearman(np.array([1.0, 2, 3, 4, 5]), np.array([10.0, 30, 20, 50, 40])) == pytest.approx(0.8)
    assert spearman(np.array([1.0, 1.0]), np.array([1.0, 2.0])) == 0.0


@given(st.lists(st.floats(-100, 100), min_size=3, max_size=30, unique=True))
def test_spearman_sees_order_alone(values: list[float]) -> None:
    first = np.array(values)
    assert spearman(first, ranks(first)) == pytest.approx(1)
    assert spearman(first, -ranks(first)) == pytest.approx(-1)


def test_ratios_of_a_scaled_copy_have_no_width() -> None:
    values = [np.random.default_rng(1).exponential(size=200), np.random.default_rng(2).exponential(size=90)]
    for ratio in paired_ratios(values, [0.7 * one for one in values], np.random.default_rng(0)).values():
        assert (ratio.ratio, ratio.low, ratio.high) == pytest.approx((0.7, 0.7, 0.7))


def test_bounds_enclose_the_ratio_and_repeat_with_the_seed() -> None:
    rng = np.random.default_rng(3)
    first = rng.exponential(size=400)
    second = first * rng.uniform(0.5, 1.1, size=400)
    found = paired_ratios([first], [second], np.random.default_rng(0))
    assert found == paired_ratios([first], [second], np.random.default_rng(0))
    for ratio in found.values():
        assert ratio.low < ratio.ratio < ratio.high


def test_calibration_counts_what_is_known() -> None:
    predicted = [Predicted(10.0, 5.0, 15.0), Predicted(20.0, 5.0, 15.0), None, Predicted(30.0, 5.0, 50.0)]
    found = calibrate(predicted, [9, 18, 1000, 31], [(1, 0, 0, 0, 0, 0, 0, 0, 0, 1), (2, 0, 0, 0, 0, 0, 0, 0, 0, 0)])
    assert found.spearman == pytest.approx(1)
    assert found.coverage_80 == pytest.approx(2 / 3)
    assert found.pit_deciles == (0.75, 0, 0, 0, 0, 0, 0, 0, 0, 0.25)
    assert found.predictions == 3


def test_calibration_of_nothing_is_nothing() -> None:
    assert calibrate([None], [5], [(0,) * 10]).predictions == 0
