"""build/demo.json: what was run and what came of it."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from sagesched_cli.demo.calibration import Calibration, calibrate
from sagesched_cli.demo.options import DemoOptions
from sagesched_cli.demo.runs import Run
from sagesched_cli.demo.statistics import Ratio, Summary, paired_ratios
from sagesched_sim.workload.exchange import Exchange

UNITS = "engine seconds: wall seconds times speedup; rates per engine second; lengths in tokens"
CAPACITY = "fcfs completions a second with all measured requests submitted at once, by the engine's own steps"

PROMPT_CHARACTERS = 160
"""Of the prompt of the request that is explained; no other prompt is written down."""


class Experiment(msgspec.Struct, frozen=True):
    """One seed: its capacity and its runs by policy."""

    seed: int
    capacity_rps: float
    exchanges: tuple[Exchange, ...]
    runs: Mapping[str, Run]


class PolicyReport(msgspec.Struct, frozen=True):
    """One policy over all seeds."""

    ttlt_s: Summary
    ttft_s: Summary
    refusals: Mapping[str, int]
    """Requests that the sidecar turned away, by its reason."""
    fallbacks: Mapping[str, int]
    """Requests that were ranked without a prediction of their own, by the trouble behind it."""
    late_p99_s: float


class SeedReport(msgspec.Struct, frozen=True):
    """One seed by itself."""

    seed: int
    capacity_rps: float
    spearman: float
    mean_ttlt_s: Mapping[str, float]
    p99_ttlt_s: Mapping[str, float]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The whole file."""

    units: str = UNITS
    data: str
    load: float
    requests: int
    """Measured requests of each seed."""
    history: int
    seeds: tuple[int, ...]
    arrivals: str
    slots: int
    kv_tokens: int
    profile: str
    speedup: float
    capacity_rps: float
    capacity: str = CAPACITY
    refused: int
    late_p99_s: float
    """99th percentile of how late the client sent, the worst policy's."""
    spearman: float
    calibration: Calibration
    policies: Mapping[str, PolicyReport]
    ratios: Mapping[str, Mapping[str, Mapping[str, Ratio]]]
    """Policy, then ttlt_s or ttft_s, then figure: over the first policy, with paired bootstrap 95 % bounds."""
    per_seed: tuple[SeedReport, ...]
    explained: Mapping[str, Any] | None


def report(options: DemoOptions, experiments: Sequence[Experiment], history: int) -> Report:
    """What the experiments say together. Predictions are judged on the last policy's runs."""
    reference, judged = options.policies[0], options.policies[-1]
    policies = {policy: _policy(policy, experiments) for policy in options.policies}
    calibration = _calibration(judged, experiments)
    return Report(
        data=options.data,
        load=options.load,
        requests=options.requests,
        history=history,
        seeds=options.seeds,
        arrivals=options.arrivals,
        kv_tokens=options.kv_tokens,
        slots=options.slots,
        profile=options.profile,
        speedup=options.speedup,
        capacity_rps=float(np.mean([one.capacity_rps for one in experiments])),
        refused=sum(sum(one.refusals.values()) for one in policies.values()),
        late_p99_s=max(one.late_p99_s for one in policies.values()),
        spearman=calibration.spearman,
        calibration=calibration,
        policies=policies,
        ratios={policy: _ratios(reference, policy, experiments) for policy in options.policies[1:]},
        per_seed=tuple(_seed(one, judged) for one in experiments),
        explained=_explained(experiments[-1], judged),
    )


def _policy(policy: str, experiments: Sequence[Experiment]) -> PolicyReport:
    runs = [one.runs[policy] for one in experiments]
    ttlt_s, ttft_s, late_s = (
        _answered(np.concatenate([getattr(run, name) for run in runs])) for name in ("ttlt_s", "ttft_s", "late_s")
    )
    return PolicyReport(
        ttlt_s=Summary.of(ttlt_s),
        ttft_s=Summary.of(ttft_s),
        refusals=_sum(run.refusals for run in runs),
        fallbacks=_sum(run.counted.fallbacks for run in runs),
        late_p99_s=float(np.quantile(late_s, 0.99)),
    )


def _sum(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """By reason."""
    total: Counter[str] = Counter()
    for one in counts:
        total.update(one)
    return dict(total)


def _answered(values: Any) -> Any:
    return values[~np.isnan(values)]


def _calibration(policy: str, experiments: Sequence[Experiment]) -> Calibration:
    runs = [one.runs[policy] for one in experiments]
    return calibrate(
        [one for run in runs for one in run.predicted],
        [exchange.output_tokens for one in experiments for exchange in one.exchanges],
        [run.counted.pit_deciles for run in runs],
    )


def _ratios(reference: str, policy: str, experiments: Sequence[Experiment]) -> dict[str, dict[str, Ratio]]:
    """Over the requests that both answered."""
    result = {}
    for name in ("ttlt_s", "ttft_s"):
        pairs = [np.stack([getattr(one.runs[p], name) for p in (reference, policy)]) for one in experiments]
        both = [pair[:, ~np.isnan(pair).any(axis=0)] for pair in pairs]
        result[name] = paired_ratios([p[0] for p in both], [p[1] for p in both], np.random.default_rng(0))
    return result


def _seed(experiment: Experiment, judged: str) -> SeedReport:
    tables = {policy: _policy(policy, [experiment]).ttlt_s for policy in experiment.runs}
    return SeedReport(
        seed=experiment.seed,
        capacity_rps=experiment.capacity_rps,
        spearman=_calibration(judged, [experiment]).spearman,
        mean_ttlt_s={policy: table.mean for policy, table in tables.items()},
        p99_ttlt_s={policy: table.p99 for policy, table in tables.items()},
    )


def _explained(experiment: Experiment, policy: str) -> dict[str, Any] | None:
    """The explanation that the sidecar gave while the request waited, its prompt, and what then came of it."""
    run = experiment.runs[policy]
    if run.explained is None:
        return None
    at = run.request_ids.index(run.explained.request_id)
    return run.explained.reasons | {
        "prompt": experiment.exchanges[at].prompt[:PROMPT_CHARACTERS],
        "true_output_tokens": experiment.exchanges[at].output_tokens,
        "ttlt_s": float(run.ttlt_s[at]),
        "ttft_s": float(run.ttft_s[at]),
    }
