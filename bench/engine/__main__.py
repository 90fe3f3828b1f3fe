"""`python -m bench.engine`: all runs, or those that are asked for; figures as tables, and in build/bench-engine.json.

A run that was made before with the same settings is not made again (build/bench-engine/).
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from bench.engine import workload
from bench.engine.policies import FCFS, KV_TOKENS, POLICIES, SLOTS
from bench.engine.report import compare, table
from bench.engine.runs import Laboratory, Plan, Run
from bench.engine.vllm_process import environment_folder
from bench.machine import load, machine

from sagesched_sim.workload.exchange import WorkloadError

HEAVY, LIGHT = 1.3, 0.7
BOUND = "clairvoyant"
OWN = (FCFS, "sagesched-priority", "sagesched-gate")
EXIT_MISSING = 3


def parser() -> argparse.ArgumentParser:
    """The command line."""
    out = argparse.ArgumentParser(prog="python -m bench.engine", description=__doc__)
    out.add_argument("--loads", type=float, nargs="+", default=[HEAVY, LIGHT], help="times the capacity (%(default)s)")
    out.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="one list of arrivals each (%(default)s)")
    out.add_argument("--policies", nargs="+", choices=POLICIES, help="which (default: all; the bound above 1 alone)")
    out.add_argument(
        "--requests", type=int, default=360, help="in each run at the heaviest load (%(default)s); two thirds in others"
    )
    out.add_argument("--lengths", nargs="+", choices=("replayed", "own"), default=["replayed", "own"])
    out.add_argument("--sidecar-settings", type=json.loads, default={}, metavar="JSON", help="over those of every run")
    out.add_argument("--out", type=Path, default=Path("build/bench-engine.json"), help="where figures go (%(default)s)")
    return out


def plans(given: argparse.Namespace) -> list[Plan]:
    """The runs, in order: which policy comes first moves on with each seed. Those that build up no queue, and those
    of long answers, have two thirds of the requests."""
    made, fewer = [], given.requests * 2 // 3
    if "replayed" in given.lengths:
        for load_ in given.loads:
            for turn, seed in enumerate(given.seeds):
                names = given.policies or [name for name in POLICIES if name != BOUND or load_ > 1]
                requests = given.requests if load_ > 1 else fewer
                made += [Plan("replayed", load_, seed, name, requests) for name in rotated(names, turn)]
    if "own" in given.lengths:
        names = [name for name in given.policies or OWN if name != BOUND]
        made += [Plan("own", max(given.loads), given.seeds[0], name, given.requests // 3) for name in names]
    return made


def rotated(names: list[str], turn: int) -> list[str]:
    """The same ones, beginning with another."""
    start = turn % len(names)
    return names[start:] + names[:start]


def main() -> int:
    """Run what was asked for."""
    given = parser().parse_args()
    folder = environment_folder()
    if isinstance(folder, str):
        print(folder, file=sys.stderr)
        return EXIT_MISSING
    kept = given.out.with_suffix("")
    laboratory = Laboratory(folder, kept, given.sidecar_settings, _say)
    todo, began, runs = plans(given), time.monotonic(), list[Run]()
    document: dict[str, Any] = {"machine": machine(), "load_before": load()}
    try:
        for number, plan in enumerate(todo, start=1):
            runs.append(laboratory.run(plan))
            _say(f"{number} of {len(todo)} after {(time.monotonic() - began) / 60:.1f} min")
    except WorkloadError as error:
        print(error, file=sys.stderr)
        return EXIT_MISSING
    document |= _document(given, laboratory, runs) | {"load_after": load()}
    given.out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"written to {given.out}")
    return 0


def _document(given: argparse.Namespace, laboratory: Laboratory, runs: list[Run]) -> dict[str, Any]:
    results = []
    for lengths, times in sorted({(run.plan.lengths, run.plan.load) for run in runs}, reverse=True):
        compared = compare([run for run in runs if (run.plan.lengths, run.plan.load) == (lengths, times)])
        print("\n".join(table(f"{times:g} x capacity, {lengths} lengths", compared)), flush=True)
        requests = next(run.plan.requests for run in runs if (run.plan.lengths, run.plan.load) == (lengths, times))
        results.append({"lengths": lengths, "load": times, "requests_a_run": requests, "policies": compared})
    return {
        "units": "seconds, tokens; ratios with 95 % bounds of a paired block bootstrap, pooled over seeds",
        "setting": {
            "seeds": given.seeds,
            "slots": SLOTS,
            "kv_cache_tokens": KV_TOKENS,
            "length_scale": workload.SCALE,
            "max_tokens": workload.MAX_TOKENS,
            "max_prompt_tokens": workload.MAX_PROMPT_TOKENS,
            "history_rows": workload.HISTORY,
            "sidecar_settings": given.sidecar_settings,
            "capacity_tokens_per_s": {name: laboratory.capacity(name).tokens_per_s for name in given.lengths},
        },
        "policies": {policy.name: policy.what for policy in POLICIES.values()},
        "results": results,
    }


def _say(what: str) -> None:
    """Progress, apart from the tables."""
    print(f"... {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
