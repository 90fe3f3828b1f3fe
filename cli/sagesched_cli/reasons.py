"""An explanation of one request, as lines of text. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from sagesched_cli import cells

NEIGHBOURS_SHOWN = 5

Line = tuple[str, str]
"""A label and its text."""


def about(found: Mapping[str, Any]) -> Iterator[Line]:
    """Everything of an explanation as the sidecar gives it."""
    yield "request", f"{cells.printable(found['request_id'], 128)}: {found['phase']}"
    yield from why(found)
    if found["phase"] == "running":
        yield "so far", f"{found['generated_tokens']} tokens; {found['mean_tokens']:.0f} to come"
    ended = found.get("ended")
    if ended:
        length = "length unknown" if ended["output_tokens"] is None else f"{ended['output_tokens']} tokens"
        yield "ended", f"{ended['how']}: {length}; waited {ended['waited_s']:.1f} s of {ended['total_s']:.1f} s"


def why(found: Mapping[str, Any]) -> Iterator[Line]:
    """What it was predicted from, what was predicted, and where that puts it."""
    near = found["neighbours"]
    nearest = ", ".join(f"{tokens} tokens at {similarity:.2f}" for similarity, tokens in near[:NEIGHBOURS_SHOWN])
    yield "neighbours", f"{len(near)}; the nearest: {nearest}" if near else "none"
    yield "evidence", ", ".join(f"{name} {100 * share:.0f} %" for name, share, _ in found["levels"])
    if found.get("alone"):
        yield (
            "fallback",
            f"{found['alone']} alone: lately all levels together predicted worse than no neighbours",
        )
    yield "distribution", ", ".join(f"{name} {tokens:.0f}" for name, tokens in found["quantiles"].items())
    yield "mean", f"{found['mean_tokens']:.0f} tokens; cost {found['mean_cost']:.3g}; index {found['index']:.3g}"
    yield "rank", f"key {_key(found['rank']):.4g} under {found['policy']}: {_ahead(found['ahead'])}"


def _ahead(ahead: int | None) -> str:
    return "it no longer waited" if ahead is None else f"{ahead} waiting requests went before it"


def _key(rank: Any) -> float:
    """The key of a rank (priority, key, arrival, id), which JSON holds as a list or as an object."""
    return float(rank["key"] if isinstance(rank, Mapping) else rank[1])
