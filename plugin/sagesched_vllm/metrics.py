"""Our series on the engine's own /metrics page: a stat logger, which vLLM loads in the process that serves it.

Found by the entry point `vllm.stat_logger_plugins` of the installed package. An engine with another scheduler gets no
series.
"""

from typing import Any

from prometheus_client import Counter, Gauge
from vllm.v1.metrics.loggers import AggregateStatLoggerBase

from sagesched_vllm.counters import COUNTS, STATES, Series, take_from

PREFIX = "sagesched_plugin_"

_made: dict[str, Any] = {}
"""One of each in a process, however often an engine is made in it."""


class SageStatLogger(AggregateStatLoggerBase):
    """Takes what the scheduler has put into each step's statistics, and counts it."""

    def __init__(self, vllm_config: Any, engine_indexes: list[int]) -> None:
        self._states: dict[int, set[Series]] = {}
        scheduler = vllm_config.scheduler_config.scheduler_cls
        if not str(scheduler).startswith(__package__ or "sagesched_vllm"):
            return
        for name, (text, labels) in COUNTS.items():
            metric = _made.setdefault(name, None) or Counter(PREFIX + name, text, ("engine", *labels))
            _made[name] = metric
            if not labels:
                for index in engine_indexes:
                    metric.labels(str(index))
        for name, (text, labels) in STATES.items():
            metric = _made.setdefault(name, None) or Gauge(
                PREFIX + name, text, ("engine", *labels), multiprocess_mode="mostrecent"
            )
            _made[name] = metric

    def record(
        self, scheduler_stats: Any, iteration_stats: Any, mm_cache_stats: Any = None, engine_idx: int = 0, **_: Any
    ) -> None:
        """One step's."""
        if scheduler_stats is None or not scheduler_stats.waiting_lora_adapters:
            return
        states: set[Series] = set()
        for series, value in take_from(scheduler_stats.waiting_lora_adapters):
            metric = _made.get(series[0])
            if metric is None:
                continue
            labelled = metric.labels(str(engine_idx), *series[1:])
            if series[0] in STATES:
                labelled.set(value)
                states.add(series)
            else:
                labelled.inc(value)
        if states:
            self._forget(engine_idx, states)

    def _forget(self, engine_idx: int, states: set[Series]) -> None:
        """States that are no longer told, as of other settings, are gone."""
        for series in self._states.get(engine_idx, set()) - states:
            metric = _made[series[0]]
            metric.labels(str(engine_idx), *series[1:]).set(0)
            metric.remove(str(engine_idx), *series[1:])
        self._states[engine_idx] = states

    def log_engine_initialized(self) -> None:
        """Nothing to say."""
