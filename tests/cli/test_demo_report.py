"""The report, the tables and the picture of made-up runs."""

import math
import re
from collections.abc import Callable
from xml.etree import ElementTree

import msgspec
import numpy as np
import pytest

from sagesched_cli.demo.chart import Axis
from sagesched_cli.demo.options import DemoOptions
from sagesched_cli.demo.picture import page, requests_present
from sagesched_cli.demo.report import Experiment, Report, report
from sagesched_cli.demo.tables import text

Make = Callable[..., Experiment]


@pytest.fixture
def options(monkeypatch: pytest.MonkeyPatch) -> DemoOptions:
    monkeypatch.setattr("sagesched_cli.demo.options.POLICIES", ("a", "b"))
    return DemoOptions(policies=("a", "b"), requests=4)


def _report(options: DemoOptions, *experiments: Experiment) -> Report:
    return report(options, experiments, history=50)


def test_report_holds_what_it_promises(options: DemoOptions, experiment: Make) -> None:
    found = _report(options, experiment([4.0, 8.0, 6.0, 2.0], [2.0, 4.0, 3.0, 1.0]))
    document = msgspec.json.decode(msgspec.json.encode(found))
    assert {"load", "data", "seeds", "spearman", "refused", "units", "capacity_rps", "requests", "speedup"} <= set(
        document
    )
    for policy in ("a", "b"):
        for times in ("ttlt_s", "ttft_s"):
            assert set(document["policies"][policy][times]) == {"mean", "p50", "p95", "p99", "max"}
    assert document["policies"]["a"]["ttlt_s"]["mean"] == 5.0
    assert document["ratios"]["b"]["ttlt_s"]["mean"] == pytest.approx({"ratio": 0.5, "low": 0.5, "high": 0.5})
    assert document["refused"] == 0
    assert document["spearman"] == pytest.approx(1.0)
    assert document["explained"]["true_output_tokens"] == 101


def test_seeds_are_pooled(options: DemoOptions, experiment: Make) -> None:
    found = _report(options, experiment([1.0, 1.0], [1.0, 1.0], seed=1), experiment([3.0, 3.0], [1.0, 1.0], seed=2))
    assert found.policies["a"].ttlt_s.mean == 2.0
    assert found.ratios["b"]["ttlt_s"]["mean"].ratio == 0.5
    assert [one.seed for one in found.per_seed] == [1, 2]
    assert found.per_seed[1].mean_ttlt_s == {"a": 3.0, "b": 1.0}


def test_refused_requests_count_and_are_left_out_of_the_times(options: DemoOptions, experiment: Make) -> None:
    found = _report(options, experiment([4.0, 8.0, 6.0], [2.0, math.nan, 3.0]))
    assert found.refused == 1
    assert found.policies["b"].ttlt_s.max == 3.0
    assert found.ratios["b"]["ttlt_s"]["mean"].ratio == 0.5
    assert "1 queue-full" in text(found)


def test_text_has_the_change_the_calibration_and_the_explanation(options: DemoOptions, experiment: Make) -> None:
    printed = text(_report(options, experiment([4.0, 8.0, 6.0, 2.0], [2.0, 4.0, 3.0, 1.0])))
    assert re.search(r"TTLT mean +5\.00 +2\.50 +-50\.0 %", printed)
    assert re.search(r"TTFT P99 ", printed)
    assert "Spearman of predicted mean and true length 1.00" in printed
    assert "120 tokens at 0.91" in printed
    assert "4 waiting requests went before it" in printed
    assert "prompt 1" in printed
    assert "WARNING" not in printed


def test_page_is_self_contained_and_its_charts_are_well_formed(options: DemoOptions, experiment: Make) -> None:
    one = experiment([4.0, 8.0, 6.0, 2.0], [2.0, 4.0, 3.0, 1.0])
    html = page(_report(options, one), [one])
    assert not re.search(r"<script|<link|src=|https?://", html)
    charts = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", html, re.DOTALL)]
    assert [len(chart.findall("polyline")) for chart in charts] == [2, 2]
    for chart in charts:
        for line in chart.findall("polyline"):
            points = np.array([point.split(",") for point in line.attrib["points"].split()], dtype=np.float64)
            assert ((points >= 0) & (points <= [760, 340])).all()


def test_requests_present_rise_and_fall(experiment: Make) -> None:
    moments_s, present = requests_present(experiment([1.5, 1.5, 0.2], [1.0, 1.0, 1.0]).runs["a"])
    assert moments_s.tolist() == [0.0, 1.0, 1.5, 2.0, 2.2, 2.5]
    assert present.tolist() == [1, 2, 1, 2, 1, 0]


@pytest.mark.parametrize(("highest", "top", "step"), [(97.0, 100.0, 20.0), (0.9, 1.0, 0.2), (100.0, 100.0, 20.0)])
def test_axis_ticks_are_round_and_hold_the_highest(highest: float, top: float, step: float) -> None:
    axis = Axis.over("x", highest)
    assert (axis.top, axis.step) == pytest.approx((top, step))
    assert axis.ticks()[-1] == pytest.approx(axis.top)
