"""Runs and experiments made up for the demo's pure parts."""

from collections.abc import Callable

import numpy as np
import pytest

from sagesched_cli.demo.insight import Counters, Explained, Predicted
from sagesched_cli.demo.report import Experiment
from sagesched_cli.demo.runs import Run
from sagesched_sim.workload.exchange import Exchange

REASONS = {
    "request_id": "b-1",
    "phase": "waiting",
    "policy": "b",
    "levels": [["nearest", 0.9, 10.0], ["prior", 0.1, 0.0]],
    "neighbours": [[0.91, 120], [0.88, 80]],
    "quantiles": {"p10": 20.0, "p50": 100.0, "p90": 200.0},
    "mean_tokens": 110.0,
    "mean_cost": 12_000.0,
    "index": 9_000.0,
    "rank": [0, 17.5, 3.0, "b-1"],
    "ahead": 4,
    "generated_tokens": 0,
}


def _run(policy: str, ttlt_s: list[float], explained: Explained | None) -> Run:
    times = np.array(ttlt_s)
    return Run(
        policy=policy,
        request_ids=tuple(f"{policy}-{n}" for n in range(times.size)),
        arrival_s=np.arange(times.size, dtype=np.float64),
        ttft_s=times / 2,
        ttlt_s=times,
        late_s=np.where(np.isnan(times), np.nan, 0.01),
        predicted=tuple(Predicted(100.0 + n, 10.0, 250.0) for n in range(times.size)),
        refusals={"queue-full": int(np.isnan(times).sum())} if np.isnan(times).any() else {},
        counted=Counters((1,) * 10, {}),
        explained=explained,
    )


@pytest.fixture
def experiment() -> Callable[..., Experiment]:
    """An experiment of one seed with policies `a` and `b` and the given times to last token."""

    def make(a: list[float], b: list[float], seed: int = 1) -> Experiment:
        exchanges = tuple(Exchange(f"prompt {n}", 100 + n) for n in range(len(a)))
        runs = {"a": _run("a", a, None), "b": _run("b", b, Explained("b-1", REASONS))}
        return Experiment(seed, 2.0, exchanges, runs)

    return make
