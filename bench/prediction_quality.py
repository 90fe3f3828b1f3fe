"""How well the back-off chain predicts lengths, level by level: `python -m bench.prediction_quality`.

ShareGPT comes from the extra `sagesched[sharegpt]`. With SAGESCHED_DATA naming a folder with `prompts.jsonl.gz` and
`output_lengths.csv.gz` (prompts and lengths of HelloBench for several models), its writing and question prompts are
measured too, each predicted from all the others of its model. Writes build/prediction_quality.json.
"""

import argparse
import csv
import gzip
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sagesched.embed import open_embedder
from sagesched.features import features_of
from sagesched.history import HistoryWindow, Vector
from sagesched.lengths import LengthDistribution
from sagesched.predictor import Chain, Predictor
from sagesched.request import Outcome, Request
from sagesched.settings import Embedding, Scheduling
from sagesched_sim.workload import sources

NEVER = float("inf")
ROUGH_CHARACTERS_A_TOKEN = 4
VARIANTS: dict[str, tuple[Scheduling, Chain]] = {
    "global": (Scheduling(), Chain(similar=NEVER, nearest=NEVER, in_class=NEVER)),
    "class": (Scheduling(), Chain(similar=NEVER, nearest=NEVER)),
    "paper: similar, else global": (Scheduling(), Chain(similar=0.0, nearest=NEVER, in_class=NEVER, bandwidth=1e6)),
    "10 nearest, plain": (Scheduling(neighbours=10), Chain(similar=0.0, nearest=0.0, bandwidth=1e6)),
    "chain without what is asked for": (Scheduling(), Chain(number_scale=1e6, number_mismatch=1.0)),
    "chain": (Scheduling(), Chain()),
}
HELLOBENCH = ("hellobench_chat", "hellobench_heuristic_text_generation", "hellobench_open_ended_qa")
MODELS = ("llama31_8b", "qwen2_7b", "glm4_9b", "mistral_7b_v02")
Sample = tuple[Request, Vector, int]


def main() -> None:
    """Measure and write."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--requests", type=int, default=1500)
    options.add_argument("--history", type=int, default=7000)
    options.add_argument("--out", type=Path, default=Path("build/prediction_quality.json"))
    given = options.parse_args()
    results: dict[str, Any] = {"seed": given.seed, "units": "rank correlations and shares, without unit"}
    results["sharegpt"] = _sharegpt(given.seed, given.history, given.requests)
    folder = os.environ.get("SAGESCHED_DATA")
    if folder:
        results["hellobench"] = {model: _hellobench(Path(folder), model) for model in MODELS}
    else:
        print("hellobench: not run, SAGESCHED_DATA is not set")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(results, indent=1))
    print(f"written: {given.out}")


def _sharegpt(seed: int, history: int, requests: int) -> dict[str, dict[str, float]]:
    traffic = sources.load("sharegpt", seed, history=history, requests=requests)
    known = _samples([(x.prompt, x.output_tokens) for x in traffic.history])
    asked = _samples([(x.prompt, x.output_tokens) for x in traffic.measured])
    print(f"sharegpt: {len(known)} known, {len(asked)} predicted")
    return {name: _show(name, _measure(known, asked, variant)) for name, variant in VARIANTS.items()}


def _hellobench(folder: Path, model: str) -> dict[str, dict[str, float]]:
    with gzip.open(folder / "prompts.jsonl.gz", "rt", encoding="utf-8") as lines:
        prompts = {row["prompt_id"]: row["prompt"] for row in map(json.loads, lines)}
    with gzip.open(folder / "output_lengths.csv.gz", "rt", encoding="utf-8") as lines:
        rows = [r for r in csv.DictReader(lines) if r["model"] == model and r["dataset"] in HELLOBENCH]
    samples = _samples([(prompts[r["prompt_id"]], int(r["output_tokens"])) for r in rows])
    print(f"hellobench, {model}: {len(samples)} prompts, tenfold")
    return {name: _show(name, _tenfold(samples, variant)) for name, variant in VARIANTS.items()}


def _samples(pairs: Sequence[tuple[str, int]]) -> list[Sample]:
    embedder = open_embedder(Embedding())
    made = []
    for number, (prompt, output_tokens) in enumerate(pairs):
        tokens = 1 + len(prompt) // ROUGH_CHARACTERS_A_TOKEN
        request = Request(id=str(number), prompt_tokens=tokens, features=features_of(prompt, max_tokens=None))
        made.append((request, embedder.embed(prompt), output_tokens))
    return made


Predicted = list[tuple[Request, LengthDistribution, int]]


def _predict(known: Sequence[Sample], asked: Sequence[Sample], variant: tuple[Scheduling, Chain]) -> Predicted:
    settings, chain = variant
    predictor = Predictor(settings, HistoryWindow(10_000, asked[0][1].size), chain)
    for request, vector, output_tokens in known:
        predictor.learn(request, vector, Outcome(output_tokens=output_tokens))
    return [(r, predictor.predict(r, vector).distribution, tokens) for r, vector, tokens in asked]


def _measure(known: Sequence[Sample], asked: Sequence[Sample], variant: tuple[Scheduling, Chain]) -> dict[str, float]:
    return _judge(_predict(known, asked, variant), [tokens for _, _, tokens in known])


def _tenfold(samples: Sequence[Sample], variant: tuple[Scheduling, Chain]) -> dict[str, float]:
    predicted: Predicted = []
    for fold in range(10):
        others = [sample for i, sample in enumerate(samples) if i % 10 != fold]
        predicted += _predict(others, samples[fold::10], variant)
    return _judge(predicted, [tokens for _, _, tokens in samples])


def _judge(predicted: Predicted, all_tokens: Sequence[int]) -> dict[str, float]:
    """Rank correlation of length and cost, CRPS skill against the global distribution, 80 % coverage."""
    baseline = LengthDistribution.from_samples(all_tokens)
    tokens = np.array([t for _, _, t in predicted], dtype=np.float64)
    inputs = np.array([r.prompt_tokens for r, _, _ in predicted], dtype=np.float64)
    means = np.array([d.mean() for _, d, _ in predicted])
    costs = np.array([r.prompt_tokens * d.mean() + (d.tokens**2 / 2) @ d.weights for r, d, _ in predicted])
    own = np.mean([_crps(d, t) for _, d, t in predicted])
    base = np.mean([_crps(baseline, t) for t in tokens])
    covered = np.mean([d.quantile(0.1) <= t <= d.quantile(0.9) for _, d, t in predicted])
    return {
        "spearman_length": _spearman(means, tokens),
        "spearman_cost": _spearman(costs, inputs * tokens + tokens**2 / 2),
        "crps_skill": float(1 - own / base),
        "coverage_80": float(covered),
    }


def _crps(predicted: LengthDistribution, truth: float) -> float:
    """Continuous ranked probability score in tokens: E|X - y| - E|X - X'| / 2."""
    tokens, weights = predicted.tokens, predicted.weights
    spread = (weights * tokens * (2 * np.cumsum(weights) - weights - 1)).sum()
    return float(weights @ np.abs(tokens - truth) - spread)


def _spearman(a: Any, b: Any) -> float:
    """With ranks averaged over ties; 0 where one side does not vary."""
    ranks = [_ranks(np.asarray(x)) for x in (a, b)]
    return 0.0 if min(r.std() for r in ranks) == 0 else float(np.corrcoef(*ranks)[0, 1])


def _ranks(values: Any) -> Any:
    _, where, count = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(count) - (count - 1) / 2)[where]


def _show(name: str, figures: dict[str, float]) -> dict[str, float]:
    print(f"  {name:34}" + "".join(f"  {key} {value:.3f}" for key, value in figures.items()))
    return figures


if __name__ == "__main__":
    main()
