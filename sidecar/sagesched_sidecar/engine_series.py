"""The engine's own series that a router looks at, for the sidecar's page: a router that scrapes the sidecar must see
what waits here and in the engine as one number, or it sends the next request to the wrong pod. No I/O."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.parser import text_string_to_metric_families

WAITING = "vllm:num_requests_waiting"
RE_EXPORTED = (
    WAITING,
    "vllm:num_requests_running",
    "vllm:kv_cache_usage_perc",
    "vllm:cache_config_info",
    "vllm:lora_requests_info",
)
MAX_SERIES = 64
MAX_LABELS = 32
MAX_LABEL_CHARACTERS = 1024


class Series(NamedTuple):
    """One sample of the engine's."""

    name: str
    labels: dict[str, str]
    value: float


def read_series(text: str) -> tuple[Series, ...]:
    """The re-exported samples of a page, at most 64; what cannot be read, or has labels without bound, is left out."""
    found: list[Series] = []
    for line in text.splitlines():
        if line.startswith(RE_EXPORTED) and len(found) < MAX_SERIES:
            found += _samples(line)
    return tuple(found)


def _samples(line: str) -> Iterator[Series]:
    try:
        for family in text_string_to_metric_families(line + "\n"):
            for sample in family.samples:
                if sample.name in RE_EXPORTED and _bounded(sample.labels):
                    yield Series(sample.name, dict(sample.labels), sample.value)
    except (ValueError, IndexError, KeyError):
        return


def _bounded(labels: dict[str, str]) -> bool:
    return len(labels) <= MAX_LABELS and all(len(value) <= MAX_LABEL_CHARACTERS for value in labels.values())


def families(series: Iterable[Series], waiting_here: int) -> Iterator[Metric]:
    """The families to show; what waits here is added to what waits in the engine, once."""
    by_name: dict[str, list[Series]] = {}
    for one in series:
        by_name.setdefault(one.name, []).append(one)
    for name, samples in by_name.items():
        text = "Requests that wait, in the sidecar and in the engine" if name == WAITING else "The engine's own"
        labels = sorted({label for sample in samples for label in sample.labels})
        family = GaugeMetricFamily(name, text, labels=labels)
        more = waiting_here if name == WAITING else 0
        for sample in samples:
            family.add_metric([sample.labels.get(label, "") for label in labels], sample.value + more)
            more = 0
        yield family
