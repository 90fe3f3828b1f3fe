"""/metrics under vLLM's names and labels, made when somebody asks; between scrapes only plain numbers are kept."""

from collections.abc import Iterator, Mapping
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from sagesched_sim.observations import Observations, Tally
from sagesched_sim.pacing import PacedEngine

_LABELS: Final = ("model_name", "engine")
_ENGINE: Final = "0"
_HELP: Final = {
    "request_prompt_tokens": "Number of prefill tokens processed.",
    "request_generation_tokens": "Number of generation tokens processed.",
    "iteration_tokens_total": "Histogram of number of tokens per engine_step.",
    "request_max_num_generation_tokens": "Histogram of maximum number of requested generation tokens.",
    "request_params_n": "Histogram of the n request parameter.",
    "request_params_max_tokens": "Histogram of the max_tokens request parameter.",
    "time_to_first_token_seconds": "Histogram of time to first token in seconds.",
    "inter_token_latency_seconds": "Histogram of inter-token latency in seconds.",
    "request_time_per_output_token_seconds": "Histogram of time_per_output_token_seconds per request.",
    "e2e_request_latency_seconds": "Histogram of e2e request latency in seconds.",
    "request_queue_time_seconds": "Histogram of time spent in WAITING phase for request.",
    "request_inference_time_seconds": "Histogram of time spent in RUNNING phase for request.",
    "request_prefill_time_seconds": "Histogram of time spent in PREFILL phase for request.",
    "request_decode_time_seconds": "Histogram of time spent in DECODE phase for request.",
    "request_num_preemptions": "Histogram of the number of times a request was preempted.",
    "request_prefill_kv_computed_tokens": "Histogram of new KV tokens computed during prefill.",
}

_ALWAYS_ZERO: Final = {
    "prefix_cache_queries": "Prefix cache queries, in terms of number of queried tokens.",
    "prefix_cache_hits": "Prefix cache hits, in terms of number of cached tokens.",
    "external_prefix_cache_queries": "External prefix cache queries, in terms of number of queried tokens.",
    "external_prefix_cache_hits": "External prefix cache hits, in terms of number of cached tokens.",
    "mm_cache_queries": "Multi-modal cache queries, in terms of number of queried items.",
    "mm_cache_hits": "Multi-modal cache hits, in terms of number of cached items.",
    "prompt_tokens_cached": "Number of cached prompt tokens (local + external).",
}
"""What vLLM counts and this engine never does: it has no prefix cache and takes no pictures."""


class EngineCollector(Collector):
    """Reads the engine's state and the observations at each scrape."""

    def __init__(self, paced: PacedEngine, observations: Observations, *, model: str, created_s: float) -> None:
        self._paced = paced
        self._seen = observations
        self._labels = (model, _ENGINE)
        self._created_s = created_s

    def collect(self) -> Iterator[Metric]:
        """All families."""
        yield from self._gauges()
        yield self._cache_config()
        yield from self._counters()
        for name, tally in self._seen.histograms.items():
            yield self._histogram(name, tally)

    def _gauges(self) -> Iterator[Metric]:
        engine = self._paced.engine
        waiting = engine.waiting_count
        yield self._gauge(
            "vllm:num_requests_running", "Number of requests in model execution batches.", engine.running_count
        )
        yield self._gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.", waiting)
        reasons = {"capacity": waiting, "deferred": 0}
        yield self._gauge_by(
            "num_requests_waiting_by_reason", "Number of waiting requests by reason.", "reason", reasons
        )
        states = {"awake": 1, "weights_offloaded": 0, "discard_all": 0}
        yield self._gauge_by("engine_sleep_state", "Engine sleep state; awake = 1.", "sleep_state", states)
        usage = engine.blocks.used / engine.blocks.total
        yield self._gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.", usage)
        yield self._gauge(
            "sagesched_sim:lag_seconds",
            "How far the last step ended behind its deadline; above some ms the machine is too slow for the speed-up.",
            self._paced.lag_s,
        )

    def _gauge(self, name: str, text: str, value: float) -> Metric:
        family = GaugeMetricFamily(name, text, labels=_LABELS)
        family.add_metric(self._labels, value)
        return family

    def _gauge_by(self, name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
        family = GaugeMetricFamily(f"vllm:{name}", text, labels=(*_LABELS, label))
        for of, value in values.items():
            family.add_metric((*self._labels, of), value)
        return family

    def _cache_config(self) -> Metric:
        limits = self._paced.engine.limits
        info = {
            "block_size": str(limits.block_size),
            "num_gpu_blocks": str(limits.num_blocks),
            "kv_cache_size_tokens": str(limits.num_blocks * limits.block_size),
            "enable_prefix_caching": "False",
            "num_gpu_blocks_override": "None",
            "gpu_memory_utilization": "0.92",
            "cache_dtype": "auto",
            "engine": _ENGINE,
        }
        family = GaugeMetricFamily(
            "vllm:cache_config_info", "Information of the LLMEngine CacheConfig", labels=list(info)
        )
        family.add_metric(list(info.values()), 1)
        return family

    def _counters(self) -> Iterator[Metric]:
        seen = self._seen
        yield self._counter("num_preemptions", "Cumulative number of preemption from the engine.", seen.preemptions)
        yield self._counter("prompt_tokens", "Number of prefill tokens processed.", seen.prompt_tokens)
        yield self._counter("generation_tokens", "Number of generation tokens processed.", seen.generation_tokens)
        for name, text in _ALWAYS_ZERO.items():
            yield self._counter(name, text, 0)
        yield self._counter_by(
            "request_success", "Count of successfully processed requests.", "finished_reason", seen.success
        )
        sources = {"local_compute": seen.prompt_tokens, "local_cache_hit": 0, "external_kv_transfer": 0}
        yield self._counter_by("prompt_tokens_by_source", "Number of prompt tokens by source.", "source", sources)

    def _counter(self, name: str, text: str, value: float) -> Metric:
        family = CounterMetricFamily(f"vllm:{name}", text, labels=_LABELS)
        family.add_metric(self._labels, value, created=self._created_s)
        return family

    def _counter_by(self, name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
        family = CounterMetricFamily(f"vllm:{name}", text, labels=(*_LABELS, label))
        for of, value in values.items():
            family.add_metric((*self._labels, of), value, created=self._created_s)
        return family

    def _histogram(self, name: str, tally: Tally) -> Metric:
        family = HistogramMetricFamily(f"vllm:{name}", _HELP[name], labels=_LABELS)
        family.add_metric(self._labels, buckets=tally.cumulative(), sum_value=tally.total)
        labels = dict(zip(_LABELS, self._labels, strict=True))
        family.add_sample(f"vllm:{name}_created", labels, self._created_s)
        return family


def registry_for(collector: EngineCollector) -> CollectorRegistry:
    """A registry that holds the engine's families alone."""
    registry = CollectorRegistry()
    registry.register(collector)
    return registry


def exposition(registry: CollectorRegistry) -> bytes:
    """The text format, version 0.0.4."""
    return generate_latest(registry)
