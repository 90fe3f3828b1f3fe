"""The policies that are compared: what each starts, and which priority, if any, clients write into their requests."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from bench.engine.workload import Workload

from sagesched.embed import open_embedder
from sagesched.features import features_of
from sagesched.gittins import Stopping
from sagesched.ranking import Ranking
from sagesched.request import Outcome, Request
from sagesched.settings import Embedding, Settings

SLOTS = 64
KV_TOKENS = 4096
BLOCK_TOKENS = 32
ENGINE = (
    *("--max-num-seqs", str(SLOTS), "--block-size", str(BLOCK_TOKENS)),
    *("--num-gpu-blocks-override", str(KV_TOKENS // BLOCK_TOKENS + 1)),  # one block is the engine's own
)
"""Every engine: one that its KV cache bounds and not its slots, as GPUs that serve large models are."""
BY_PRIORITY = ("--scheduling-policy", "priority")
Priorities = Sequence[int] | None


class Policy(NamedTuple):
    """One way of ordering."""

    name: str
    what: str
    engine: tuple[str, ...]
    """Further arguments of vLLM."""
    mode: str | None
    """The sidecar's enforcement mode; None where clients talk to vLLM itself."""
    priorities: Callable[[Workload], Priorities]
    """What clients write into the body."""


def _none(_: Workload) -> Priorities:
    return None


def predicted_means(workload: Workload) -> list[int]:
    """The mean of each predicted distribution in tokens, by the sidecar's predictor, from the history alone."""
    embedder = open_embedder(Embedding())
    ranking = Ranking(Settings(), stopping=Stopping.NEVER, dimensions=embedder.dimensions)
    for number, earlier in enumerate(workload.history):
        features = features_of(earlier.prompt, max_tokens=None)
        request = Request(id=f"h{number}", prompt_tokens=max(1, len(earlier.prompt) // 4), features=features)
        ranking.learn(request, embedder.embed(earlier.prompt), Outcome(output_tokens=earlier.output_tokens))
    means = []
    for number, asked in enumerate(workload.asked):
        features = features_of(asked.prompt, max_tokens=None)
        request = Request(id=f"m{number}", prompt_tokens=len(asked.token_ids), features=features)
        means.append(round(ranking.admit(request, embedder.embed(asked.prompt), 0.0).belief.mean_tokens()))
    return means


def true_costs(workload: Workload) -> list[int]:
    """I*O + O^2/2 with the true O: what no scheduler can know, as the bound."""
    pairs = zip(workload.asked, workload.output_tokens, strict=True)
    return [len(asked.token_ids) * tokens + tokens * tokens // 2 for asked, tokens in pairs]


FCFS = "fcfs"
POLICIES = {
    policy.name: policy
    for policy in (
        Policy(FCFS, "vLLM alone", (), None, _none),
        Policy("stock-priority", "vLLM by priority: the predicted mean length", BY_PRIORITY, None, predicted_means),
        Policy("sagesched-priority", "the sidecar in priority mode", BY_PRIORITY, "priority", _none),
        Policy("sagesched-gate", "the sidecar in gate mode", (), "gate", _none),
        Policy("clairvoyant", "vLLM by priority: the true cost", BY_PRIORITY, None, true_costs),
    )
}
