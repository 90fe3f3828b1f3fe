"""A sidecar at one moment, and what two moments say together."""

import math
from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from sagesched_cli.exits import PROTOCOL, CommandError
from sagesched_cli.sidecar_client import fetch, fetch_json

GRANTED = "granted"
COUNTED = ("sagesched_requests_total", "sagesched_output_tokens_total", "sagesched_rejected_total")


class Sample(NamedTuple):
    """Status and counters of one sidecar, read at one time."""

    at_s: float
    status: dict[str, Any]
    totals: Mapping[str, float]
    """By name, over all labels: those of COUNTED."""
    waits: Mapping[float, float]
    """Requests that started, by the upper edge of their wait in seconds, cumulative."""


class Between(NamedTuple):
    """What happened from one sample to the next. None where it cannot be told."""

    requests_per_s: float | None = None
    output_tokens_per_s: float | None = None
    rejected_per_s: float | None = None
    wait_p50_s: float | None = None
    wait_p95_s: float | None = None


def take(url: str, timeout_s: float, now_s: float) -> Sample:
    """Ask a sidecar. Raises CommandError."""
    status = fetch_json(url, "/sagesched/status", timeout_s)
    if not isinstance(status.get("gate"), dict) or not isinstance(status.get("engine"), dict):
        raise CommandError(f"what answers at {url} is no sidecar of this version", PROTOCOL)
    return read(status, fetch(url, "/metrics", timeout_s).decode("utf-8", "replace"), now_s)


def read(status: dict[str, Any], exposition: str, now_s: float) -> Sample:
    """A sample of what the sidecar said."""
    from prometheus_client.parser import text_string_to_metric_families

    totals: defaultdict[str, float] = defaultdict(float)
    waits: defaultdict[float, float] = defaultdict(float)
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            if sample.name in COUNTED:
                totals[sample.name] += sample.value
            elif sample.name == "sagesched_queue_wait_seconds_bucket" and sample.labels["outcome"] == GRANTED:
                waits[float(sample.labels["le"])] += sample.value
    return Sample(now_s, status, dict(totals), dict(waits))


def between(before: Sample | None, after: Sample) -> Between:
    """Rates and waits from one sample to the next; nothing where there is no earlier one, or the sidecar has
    restarted meanwhile."""
    if before is None or after.at_s <= before.at_s:
        return Between()
    seconds = after.at_s - before.at_s
    counts = [after.totals.get(name, 0.0) - before.totals.get(name, 0.0) for name in COUNTED]
    waits = {edge: count - before.waits.get(edge, 0.0) for edge, count in after.waits.items()}
    if min(counts) < 0 or min(waits.values(), default=0.0) < 0:
        return Between()
    requests, tokens, rejected = (count / seconds for count in counts)
    return Between(requests, tokens, rejected, quantile(waits, 0.5), quantile(waits, 0.95))


def quantile(cumulative: Mapping[float, float], q: float) -> float | None:
    """The q-quantile of a histogram by its upper edges, straight between them; its last finite edge beyond that; None
    of an empty one."""
    edges = sorted(cumulative)
    total = cumulative[edges[-1]] if edges else 0.0
    if total <= 0:
        return None
    low, below = 0.0, 0.0
    for edge in edges:
        count = cumulative[edge]
        if count >= q * total and count > below:
            return low if math.isinf(edge) else low + (edge - low) * max(0.0, q * total - below) / (count - below)
        low, below = edge, count
    return low
