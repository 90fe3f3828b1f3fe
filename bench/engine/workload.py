"""What is asked, and when: real prompts, the lengths of their real answers, and an earlier part to learn from.

What anybody may know (`Asked`) and what only the engine knows (`Workload.output_tokens`) are kept apart.
"""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from sagesched_sim.workload import sources
from sagesched_sim.workload.arrivals import poisson
from sagesched_sim.workload.exchange import Exchange
from sagesched_sim.workload.sharegpt import count_tokens

ROUGH_PROMPT_TOKENS = 360
"""By the rule of sharegpt.py; longer prompts are left out before they are tokenized."""
MAX_PROMPT_TOKENS = 500
SCALE = 0.3
"""Of recorded lengths: half of them are then below 80 tokens, one in a hundred above 270."""
MAX_TOKENS = 300
"""Every request's max_tokens, and the longest length that is replayed."""
MIN_TOKENS = 3
HISTORY = 7000
CAPACITY_REQUESTS = 128
_DRAWN = 3
"""Times as many are drawn as are wanted, so that enough are short enough."""


class Asked(msgspec.Struct, frozen=True):
    """A request as everybody may know it."""

    prompt: str
    token_ids: list[int]


class Workload(msgspec.Struct, frozen=True):
    """One seed's requests."""

    asked: tuple[Asked, ...]
    output_tokens: tuple[int, ...]
    """The truth: for the engine's file and the clairvoyant bound alone."""
    history: tuple[Exchange, ...]
    """Earlier prompts with their lengths; no measured prompt is among them."""


def scaled(output_tokens: int) -> int:
    """A recorded length, made to fit."""
    return min(MAX_TOKENS, max(MIN_TOKENS, round(SCALE * output_tokens)))


def load(seed: int, requests: int, folder: Path) -> Workload:
    """The workload of a seed; `folder`: the engine's environment, which has the tokenizer.

    Raises WorkloadError when ShareGPT is not installed.
    """
    traffic = sources.load("sharegpt", seed, history=HISTORY, requests=_DRAWN * requests)
    short = [x for x in traffic.measured if count_tokens(x.prompt) <= ROUGH_PROMPT_TOKENS]
    ids = token_ids([x.prompt for x in short], folder)
    kept = [(x, i) for x, i in zip(short, ids, strict=True) if len(i) <= MAX_PROMPT_TOKENS][:requests]
    if len(kept) < requests:
        raise ValueError(f"only {len(kept)} of {requests} prompts are short enough; ask for fewer requests")
    measured = {x.prompt for x, _ in kept}
    return Workload(
        asked=tuple(Asked(x.prompt, i) for x, i in kept),
        output_tokens=tuple(scaled(x.output_tokens) for x, _ in kept),
        history=tuple(Exchange(x.prompt, scaled(x.output_tokens)) for x in traffic.history if x.prompt not in measured),
    )


def token_ids(prompts: Sequence[str], folder: Path) -> list[list[int]]:
    """As the engine's chat endpoint tokenizes them."""
    command = [str(folder / "env" / "bin" / "python"), "-P", str(Path(__file__).with_name("prompt_ids.py"))]
    done = subprocess.run(
        [*command, str(folder / "model")], input=json.dumps(prompts), capture_output=True, text=True, check=True
    )
    ids: list[list[int]] = json.loads(done.stdout)
    return ids


def earlier(workload: Workload, requests: int, folder: Path) -> list[Asked]:
    """The latest of the history that are as short as the measured: to measure the capacity with."""
    short = [x.prompt for x in workload.history if count_tokens(x.prompt) <= ROUGH_PROMPT_TOKENS][-2 * requests :]
    ids = token_ids(short, folder)
    return [Asked(p, i) for p, i in zip(short, ids, strict=True) if len(i) <= MAX_PROMPT_TOKENS][-requests:]


def arrivals(seed: int, rate_per_s: float, requests: int) -> list[float]:
    """Poisson arrivals in seconds, the same for every policy."""
    times: list[float] = poisson(rate_per_s, requests, np.random.default_rng([seed, 2])).tolist()
    return times
