"""Runs of one load, pooled over seeds: figures of each policy, and what it is beside stock. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
from bench.engine.policies import FCFS
from bench.engine.runs import Run

from sagesched_cli.demo.statistics import FloatArray, Summary, paired_ratios

REFERENCES = (FCFS, "stock-priority")
BOOTSTRAP_SEED = 1


def compare(runs: Sequence[Run]) -> dict[str, Any]:
    """All policies of one load, by name. Comparisons take the seeds that both sides have."""
    by_policy: dict[str, dict[int, Run]] = {}
    for run in runs:
        by_policy.setdefault(run.plan.policy, {})[run.plan.seed] = run
    return {name: _figures(of.values()) | {"over": _over(name, by_policy)} for name, of in sorted(by_policy.items())}


def ttlt_s(run: Run) -> FloatArray:
    """Seconds from the moment at which it should have been sent to the last token, in order of arrival."""
    return np.array([one.last_token_s - one.arrival_s for one in run.served])


def ttft_s(run: Run) -> FloatArray:
    """The same to the first token."""
    return np.array([one.first_token_s - one.arrival_s for one in run.served])


def tokens_per_s(run: Run) -> float:
    """Output tokens over the time from the first arrival to the last token."""
    tokens = sum(one.output_tokens for one in run.served)
    return tokens / (max(one.last_token_s for one in run.served) - run.served[0].arrival_s)


def tokens_per_s_under_load(run: Run) -> float:
    """The same up to the last arrival, without the emptying of the engine after it, in which few places are taken.

    Within a request tokens count evenly from its first to its last.
    """
    until_s = run.served[-1].arrival_s
    shares = [
        (min(max((until_s - one.first_token_s) / max(one.last_token_s - one.first_token_s, 1e-9), 0.0), 1.0), one)
        for one in run.served
    ]
    return sum(share * one.output_tokens for share, one in shares) / max(until_s - run.served[0].arrival_s, 1e-9)


def _figures(runs: Iterable[Run]) -> dict[str, Any]:
    runs = list(runs)
    late = np.concatenate([[one.sent_s - one.arrival_s for one in run.served] for run in runs])
    return {
        "seeds": sorted(run.plan.seed for run in runs),
        "requests": sum(len(run.served) for run in runs),
        "ttlt_s": msgspec.to_builtins(Summary.of(np.concatenate([ttlt_s(run) for run in runs]))),
        "ttft_s": msgspec.to_builtins(Summary.of(np.concatenate([ttft_s(run) for run in runs]))),
        "mean_ttlt_s_by_seed": {str(run.plan.seed): float(ttlt_s(run).mean()) for run in runs},
        "tokens_per_s": float(np.mean([tokens_per_s(run) for run in runs])),
        "tokens_per_s_under_load": float(np.mean([tokens_per_s_under_load(run) for run in runs])),
        "preemptions": sum(run.preemptions for run in runs),
        "client_late_p99_s": float(np.quantile(late, 0.99)),
        "rate_per_s": {str(run.plan.seed): run.rate_per_s for run in runs},
        "machine_load_before": {str(run.plan.seed): run.load_before for run in runs},
    }


def _over(name: str, by_policy: dict[str, dict[int, Run]]) -> dict[str, Any]:
    """Ratios to each reference: TTLT's figures with 95 % bounds of a paired block bootstrap, and tokens/s."""
    found: dict[str, Any] = {}
    for reference in REFERENCES:
        if reference == name or reference not in by_policy:
            continue
        seeds = sorted(set(by_policy[name]) & set(by_policy[reference]))
        if not seeds:
            continue
        below = [by_policy[reference][seed] for seed in seeds]
        above = [by_policy[name][seed] for seed in seeds]
        rng = np.random.default_rng(BOOTSTRAP_SEED)
        ratios = paired_ratios([ttlt_s(run) for run in below], [ttlt_s(run) for run in above], rng)
        rates = {
            rate.__name__: float(np.mean([rate(a) / rate(b) for a, b in zip(above, below, strict=True)]))
            for rate in (tokens_per_s, tokens_per_s_under_load)
        }
        found[reference] = {"ttlt": msgspec.to_builtins(ratios)} | rates
    return found


def table(title: str, compared: dict[str, Any]) -> list[str]:
    """Lines for people."""
    head = f"{'':20}" + "".join(
        f"{name:>9}" for name in ("mean", "P50", "P95", "P99", "max", "TTFT", "tok/s", "preempt")
    )
    lines = [f"{title}: TTLT in s, mean TTFT in s", head]
    for name, figures in compared.items():
        ttlt = figures["ttlt_s"]
        row = [*(ttlt[key] for key in ("mean", "p50", "p95", "p99", "max")), figures["ttft_s"]["mean"]]
        cells = [f"{value:9.1f}" for value in (*row, figures["tokens_per_s"])]
        lines.append(f"{name:20}" + "".join(cells) + f"{figures['preemptions']:9d}")
    for name, figures in compared.items():
        for reference, over in figures["over"].items():
            parts = [
                f"{key} {100 * (r['ratio'] - 1):+.1f} % ({100 * (r['low'] - 1):+.1f} to {100 * (r['high'] - 1):+.1f})"
                for key, r in over["ttlt"].items()
            ]
            lines.append(f"  {name} over {reference}: {', '.join(parts)}; tokens/s x {over['tokens_per_s']:.3f}")
    return lines
