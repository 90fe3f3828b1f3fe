"""Prediction: embed, search, distribution and index for a 200-token prompt over a full window, on one core."""

import os
import sys
from collections.abc import Callable
from typing import Any

from bench import minilm
from bench.figures import Figure, Result, quantile
from bench.processes import run_json
from bench.prompts import TOKENS, Prompts

SEED = 1
ROWS = 10_000
COUNT = 3000
WARM_UP = 300
LIMIT_MEDIAN_MS = 0.5
LIMIT_P99_MS = 2.0
MINILM_PROMPTS = 200
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_LIMIT_S = 300.0
PARTS = {
    "embed": "static embedder",
    "search": "nearest of 10,000 rows",
    "distribution": "mixture of the back-off chain",
    "index": "cost and Gittins index",
    "features": "amount asked for, read from the prompt: comes on top",
    "admit": "search, distribution, index, place in the order",
    "finish": "history learns (after the answer)",
}


def run(say: Callable[[str], None], minilm_python: str | None) -> Result:
    """Measure. `minilm_python`: of an environment with MiniLM; None makes or finds one, "" leaves it out."""
    core = max(os.sched_getaffinity(0))
    setting: dict[str, Any] = {
        "seed": SEED,
        "rows": ROWS,
        "count": COUNT,
        "warm_up": WARM_UP,
        "core": core,
        "tokens": TOKENS,
    }
    figures: list[Figure] = []
    for stopping in ("anywhere", "never"):
        say(f"predict: {ROWS:,} rows, {COUNT:,} prompts, a host that can stop {stopping}")
        given = setting | {"stopping": stopping}
        command = [sys.executable, "-m", "bench.predict_worker"]
        measured = run_json(command, given, limit_s=_LIMIT_S, environment=ONE_THREAD)
        figures += _figures(measured, stopping)
        setting[f"neighbours_median_{stopping}"] = quantile(measured["neighbours"], 0.5)
        setting["embedder"] = measured["embedder"]
    beside, notes = _minilm(say, core, minilm_python, figures)
    return Result("predict", (*figures, *beside), setting, notes)


def _figures(measured: dict[str, Any], stopping: str) -> list[Figure]:
    seconds: dict[str, list[float]] = measured["seconds"]
    median, p99 = (1e3 * quantile(seconds["whole"], share) for share in (0.5, 0.99))
    figures = [
        Figure(f"prediction, median (stops {stopping})", median, "ms", LIMIT_MEDIAN_MS),
        Figure(f"prediction, P99 (stops {stopping})", p99, "ms", LIMIT_P99_MS),
    ]
    if stopping == "anywhere":
        for part, what in PARTS.items():
            middle, high = (1e3 * quantile(seconds[part], share) for share in (0.5, 0.99))
            figures.append(Figure(f"  {part}, median", middle, "ms", beside=f"P99 {high:.3f} ms; {what}"))
    return figures


def _minilm(
    say: Callable[[str], None], core: int, python: str | None, figures: list[Figure]
) -> tuple[list[Figure], tuple[str, ...]]:
    """The model's figures beside ours, or a note that says why there are none."""
    if python == "":
        return [], ("all-MiniLM-L6-v2: left out by --no-minilm",)
    prompts = Prompts(SEED + 1)
    texts = [prompts.draw()[1] for _ in range(MINILM_PROMPTS)]
    try:
        seconds, where = minilm.measure(say, texts, core, python, ONE_THREAD)
    except minilm.Unavailable as reason:
        say(f"predict: all-MiniLM-L6-v2 cannot be measured here: {reason}")
        return [], (f"all-MiniLM-L6-v2: not measured: {reason}",)
    ours = next(figure.value for figure in figures if figure.name.strip() == "embed, median")
    median, p99 = (1e3 * quantile(seconds, share) for share in (0.5, 0.99))
    beside = f"{median / ours:,.0f} times the static embedder's"
    return [
        Figure("all-MiniLM-L6-v2 embedding, median", median, "ms", beside=beside),
        Figure("all-MiniLM-L6-v2 embedding, P99", p99, "ms"),
    ], (f"all-MiniLM-L6-v2: {where}, {MINILM_PROMPTS} prompts on the same core",)
