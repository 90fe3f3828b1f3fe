"""Does taking places by the rule pay? `python -m bench.preemption`: the simulated engine with SageSched inside it.

The rule on and off, on the same arrivals; predictions are the repository's own. Prints a table, writes
build/preemption.json.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from sagesched.embed import open_embedder
from sagesched.features import features_of
from sagesched.gittins import Stopping
from sagesched.history import Vector
from sagesched.ranking import Ranking
from sagesched.request import Outcome, Request
from sagesched.settings import Embedding, History, Preemption, Scheduling, Settings
from sagesched_cli.demo.capacity import capacity_rps
from sagesched_cli.demo.statistics import FloatArray, Ratio, paired_ratios, spearman
from sagesched_sim.engine import EngineLimits, EngineRequest, Resume
from sagesched_sim.ordered import OrderedEngine
from sagesched_sim.profile import profile_named
from sagesched_sim.prompt import chat_template, count_tokens
from sagesched_sim.workload import sources
from sagesched_sim.workload.arrivals import arrivals_named
from sagesched_sim.workload.exchange import Exchange

PROFILE = "llama-3.1-8b-rtx4090"
BLOCK_TOKENS = 16
MAX_MODEL_LEN = 8192
OFF = "off"


class Place(NamedTuple):
    """An engine, and with it what is short."""

    slots: int
    kv_tokens: int
    resume: Resume


PLACES = {
    "slots, recompute": Place(16, 41_408, "recompute"),
    "slots, copy": Place(16, 41_408, "copy"),
    "memory, recompute": Place(256, 16_384, "recompute"),
    "memory, copy": Place(256, 16_384, "copy"),
}
Sample = tuple[Request, Vector, int]


class Workload(NamedTuple):
    """One seed's requests with their vectors and true lengths."""

    history: list[Sample]
    measured: list[Sample]
    exchanges: tuple[Exchange, ...]


class Played(NamedTuple):
    """What came of one run."""

    ttlt_s: FloatArray
    preemptions: int
    decisions: Counter[str]
    spearman: float
    """Of the predicted and the true output lengths, at arrival."""


def load(data: str, seed: int, history: int, requests: int) -> Workload:
    """The traffic of a seed, embedded."""
    traffic = sources.load(data, seed, history=history, requests=requests)
    return Workload(_samples(traffic.history), _samples(traffic.measured), traffic.measured)


def _samples(exchanges: Sequence[Exchange]) -> list[Sample]:
    embedder = open_embedder(Embedding())
    made = []
    for number, one in enumerate(exchanges):
        tokens = count_tokens(chat_template([("user", one.prompt)]))
        request = Request(id=str(number), prompt_tokens=tokens, features=features_of(one.prompt, max_tokens=None))
        made.append((request, embedder.embed(one.prompt), one.output_tokens))
    return made


def play(workload: Workload, place: Place, arrivals_s: FloatArray, settings: Settings) -> Played:
    """One run to its end."""
    engine = _engine(workload, place, settings)
    count = len(arrivals_s)
    ended_s, predicted = np.zeros(count), np.zeros(count)
    preemptions = come = 0
    while come < count or engine.has_work:
        if not engine.has_work:
            engine.now_s = max(engine.now_s, float(arrivals_s[come]))
        while come < count and arrivals_s[come] <= engine.now_s:
            _enter(engine, workload.measured[come], float(arrivals_s[come]))
            predicted[come] = engine.ranking.remaining_tokens(str(come))
            come += 1
        result = engine.step()
        preemptions += len(result.preempted)
        for one in result.finished:
            ended_s[int(one.id)] = engine.now_s
    lengths = np.array([tokens for _, _, tokens in workload.measured], dtype=np.float64)
    return Played(ended_s - arrivals_s, preemptions, engine.decisions, spearman(predicted, lengths))


def _engine(workload: Workload, place: Place, settings: Settings) -> OrderedEngine:
    ranking = Ranking(settings, stopping=Stopping.BOUNDARIES, dimensions=workload.history[0][1].size)
    for request, vector, tokens in workload.history:
        ranking.learn(request, vector, Outcome(output_tokens=tokens))
    limits = EngineLimits(
        max_num_seqs=place.slots,
        block_size=BLOCK_TOKENS,
        num_blocks=place.kv_tokens // BLOCK_TOKENS,
        max_model_len=MAX_MODEL_LEN,
        resume=place.resume,
    )
    return OrderedEngine(profile_named(PROFILE), limits, ranking, settings.engine.kv_reserve)


def _enter(engine: OrderedEngine, sample: Sample, arrival_s: float) -> None:
    known, vector, tokens = sample
    ask = Request(id=known.id, prompt_tokens=known.prompt_tokens, features=known.features, arrival_s=arrival_s)
    request = EngineRequest(
        id=known.id, prompt_tokens=known.prompt_tokens, output_tokens=tokens, max_tokens=MAX_MODEL_LEN
    )
    engine.enter(request, ask, vector)


def rule_named(text: str) -> Preemption:
    """`off`, or the hysteresis and the cap as `0.5/1`."""
    if text == OFF:
        return Preemption(enabled=False)
    hysteresis, cap = text.split("/")
    return Preemption(hysteresis=float(hysteresis), max_per_request=int(cap))


def compare(
    workloads: Sequence[Workload], place: Place, arrivals: Sequence[FloatArray], policy: str, rules: Sequence[str]
) -> dict[str, list[Played]]:
    """Every rule, and none, on the same arrivals; one run a seed."""
    runs = {}
    for rule in (OFF, *rules):
        settings = Settings(
            scheduling=Scheduling(policy=policy),  # type: ignore[arg-type]
            preemption=rule_named(rule),
            history=History(learn=False),
        )
        runs[rule] = [play(of, place, at_s, settings) for of, at_s in zip(workloads, arrivals, strict=True)]
    return runs


def row(runs: list[Played], without: list[Played]) -> dict[str, Any]:
    """The figures of one rule over those without it, all seeds pooled."""
    ratios = paired_ratios([p.ttlt_s for p in without], [p.ttlt_s for p in runs], np.random.default_rng(7))
    times_s = np.concatenate([p.ttlt_s for p in runs])
    return {
        "mean_s": float(times_s.mean()),
        "p99_s": float(np.quantile(times_s, 0.99)),
        "mean": _bounds(ratios["mean"]),
        "p99": _bounds(ratios["p99"]),
        "preemptions": sum(p.preemptions for p in runs),
        "requests": len(times_s),
        "spearman": float(np.mean([p.spearman for p in runs])),
        "steps": dict(sum((p.decisions for p in runs), Counter())),
    }


def _bounds(ratio: Ratio) -> list[float]:
    return [ratio.ratio - 1, ratio.low - 1, ratio.high - 1]


def _cell(change: Sequence[float]) -> str:
    return "{:+.1%} ({:+.1%} to {:+.1%})".format(*change)


def main() -> None:
    """Measure, print and write."""
    given = _options()
    seeds = [int(seed) for seed in given.seeds.split(",")]
    workloads = [load(given.data, seed, given.history, given.requests) for seed in seeds]
    drawn: Callable[..., FloatArray] = arrivals_named(given.arrivals)
    rows = []
    print(f"{given.data}, {given.arrivals}, {given.load} times capacity, policy {given.policy}, seeds {given.seeds}\n")
    print(
        "| what is short, resume | hysteresis/cap | mean TTLT | change | P99 | preempted |\n|---|---|---|---|---|---|"
    )
    for name in given.places.split(";"):
        place = PLACES[name]
        arrivals = []
        for seed, of in zip(seeds, workloads, strict=True):
            rate = capacity_rps(of.exchanges, profile=PROFILE, slots=place.slots, kv_tokens=place.kv_tokens)
            arrivals.append(drawn(given.load * rate, given.requests, np.random.default_rng([seed, 2])))
        runs = compare(workloads, place, arrivals, given.policy, given.rules.split(","))
        for rule, of_rule in runs.items():
            made = row(of_rule, runs[OFF])
            rows.append({"place": name, "rule": rule, **made})
            changes = "" if rule == OFF else _cell(made["mean"]), "" if rule == OFF else _cell(made["p99"])
            share = made["preemptions"] / made["requests"]
            print(f"| {name} | {rule} | {made['mean_s']:.1f} | {changes[0]} | {changes[1]} | {share:.1%} |", flush=True)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    asked = {name: value for name, value in vars(given).items() if name != "out"}
    given.out.write_text(json.dumps({**asked, "rows": rows}, indent=1))


def _options() -> argparse.Namespace:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--data", default="topics", help="topics or sharegpt")
    options.add_argument("--seeds", default="1,2,3")
    options.add_argument("--places", default=";".join(PLACES), help="which engines, separated by ;")
    options.add_argument("--arrivals", default="bursts:2/0.15/0.85")
    options.add_argument("--load", type=float, default=1.1, help="over capacity under fcfs")
    options.add_argument("--policy", default="sagesched")
    options.add_argument("--rules", default="0.5/1", help="hysteresis/cap, separated by commas")
    options.add_argument("--requests", type=int, default=500)
    options.add_argument("--history", type=int, default=1500)
    options.add_argument("--out", type=Path, default=Path("build/preemption.json"))
    return options.parse_args()


if __name__ == "__main__":
    main()
