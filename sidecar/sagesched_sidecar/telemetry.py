"""The sidecar's metrics: a registry of its own, names of the `sagesched_` family, label sets that are bounded."""

import logging
from collections.abc import Iterable, Iterator
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from sagesched.request import Outcome, Request
from sagesched.scoreboard import Turn
from sagesched.ticket import Ticket
from sagesched_sidecar.engine_series import families
from sagesched_sidecar.gate import Gate
from sagesched_sidecar.live import Effective, Reload
from sagesched_sidecar.logs import LOGGED_MODEL_CHARACTERS
from sagesched_sidecar.monitor import EngineMonitor
from sagesched_sidecar.records import Ended

OTHER = "other"
DEFAULT_CLASS = "default"
MAX_REASONS = 32
MAX_CLASSES = 64
"""Values of a label `class` in the life of a process: settings list 16 at a time."""

_log = logging.getLogger(__name__)

_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_FAST_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1)
_TOKENS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


class Bounded:
    """A set of label values that stops growing: later ones read `other`."""

    def __init__(self, limit: int = MAX_REASONS) -> None:
        self._limit = limit
        self._known: set[str] = set()

    def __call__(self, value: str) -> str:
        if value in self._known:
            return value
        if len(self._known) >= self._limit:
            return OTHER
        self._known.add(value)
        return value


class Telemetry:
    """Everything the sidecar counts; it is the gate's observer too."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._reason = Bounded()
        self.class_label = Bounded(MAX_CLASSES)
        self.classes: tuple[str, ...] = (DEFAULT_CLASS,)
        """The classes that requests can have now."""
        self._make_scheduling()
        self._make_proxy()
        self._make_config()
        self._gauge("build_info", "Version of the sidecar", "version").labels(version("sagesched")).set(1)

    def _make_scheduling(self) -> None:
        self.queue_wait = self._histogram(
            "queue_wait_seconds", "Time in the queue, by how it ended", _SECONDS, "class", "outcome"
        )
        self.promotions = self._counter("starvation_promotions_total", "Requests that went next by the wait bound")
        self.fallbacks = self._counter("fallback_total", "Requests that were ranked neutrally, by trouble", "reason")
        self.neighbours = self._histogram(
            "prediction_neighbours", "Neighbours behind a prediction", (0, 1, 5, 10, 30, 100, 300)
        )
        self.embedding = self._histogram(
            "prediction_seconds", "Embedding a prompt, by what the prediction then rested on", _FAST_SECONDS, "source"
        )
        self.predictions = self._counter("predictions_total", "Predictions, by the level that counted most", "source")
        self.pit = self._counter("prediction_pit_bucket_total", "Where lengths fell in their predictions", "decile")
        self.error = self._histogram("prediction_abs_error_tokens", "Distance of length and predicted mean", _TOKENS)

    def _make_proxy(self) -> None:
        self.dispatched = self._counter("dispatch_total", "Requests sent to the engine", "reason")
        self.rejected = self._counter("rejected_total", "Answers of the sidecar's own", "reason")
        self.requests = self._counter("requests_total", "Scheduled requests, by how they ended", "outcome")
        self.output_tokens = self._counter("output_tokens_total", "Output tokens of answered requests, all choices")
        self.prompt_tokens = self._counter("prompt_tokens_total", "Prompt tokens of answered requests")
        self.cached_tokens = self._counter("cached_prompt_tokens_total", "Of them, those that a prefix cache held")
        self.aborts = self._counter("upstream_abort_total", "Engine connections closed early", "cause")
        self.overhead = self._histogram(
            "proxy_overhead_seconds", "From a whole request to the gate's door", _FAST_SECONDS
        )
        self.unknown_classes = self._counter("unknown_class_total", "Requests that named a class that is not listed")

    def _make_config(self) -> None:
        self.config = self._gauge(
            "config_info", "Digests of the settings in use and of the file", "hash", "file_hash", "revision"
        )
        self.reloads = self._counter(
            "config_reload_total", "Changes of the settings file, by what came of them", "result"
        )
        self.reloaded_at = self._gauge(
            "config_last_reload_success_timestamp_seconds", "When settings were last taken over"
        )
        self.reloaded_well = self._gauge(
            "config_last_reload_successful", "Whether the file as it is now was taken over"
        )
        self.pending = self._gauge("config_pending_fields", "Fields of the file that wait for a restart")

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"sagesched_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"sagesched_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: Iterable[float], *labels: str) -> Histogram:
        return Histogram(f"sagesched_{name}", text, labels, buckets=tuple(buckets), registry=self.registry)

    def configured(self, now: Effective, last: Reload) -> None:
        """These settings are in use; their digest is the only one shown."""
        listed = now.settings.scheduling.classes
        self.classes = (DEFAULT_CLASS, *(one.name for one in listed if one.name != DEFAULT_CLASS))
        self.config.clear()
        self.config.labels(now.digest, now.file_digest, now.revision).set(1)
        self.pending.set(len(now.pending))
        self.reloaded_at.set(last.success_at_s)
        self.reloaded_well.set(last.problem is None)

    def reloaded(self, now: Effective, reload: Reload) -> None:
        """The settings file has changed; `now` is in use since, or still."""
        self.reloads.labels(reload.result).inc()
        self.configured(now, reload)

    def waited(self, ticket: Ticket, outcome: str, seconds: float) -> None:
        """See gate.Observer."""
        self.queue_wait.labels(self.class_label(ticket.request.class_name), self._reason(outcome)).observe(seconds)
        if outcome == "granted":
            self.dispatched.labels("turn").inc()

    def promoted(self) -> None:
        """See gate.Observer."""
        self.promotions.inc()

    def troubled(self, cause: str) -> None:
        """See gate.Observer; the embedder's trouble too."""
        self.fallbacks.labels(self._reason(cause)).inc()

    def rejected_for(self, reason: str) -> None:
        """The sidecar itself answered."""
        self.rejected.labels(self._reason(reason)).inc()

    def predicted(self, ticket: Ticket, embedding_s: float) -> None:
        """A request has its turn; its embedding took so long."""
        source = ticket.prediction.source
        self.predictions.labels(source).inc()
        self.embedding.labels("timeout" if ticket.embedding is None else _rests_on(source)).observe(embedding_s)
        self.neighbours.observe(ticket.prediction.neighbours.rows.size)

    def spent(self, request: Request, outcome: Outcome) -> None:
        """An answered request had so many tokens, by the engine's count where it gave one."""
        self.output_tokens.inc(outcome.output_tokens * request.features.choices)
        self.prompt_tokens.inc(request.prompt_tokens if outcome.prompt_tokens is None else outcome.prompt_tokens)
        self.cached_tokens.inc(outcome.cached_tokens or 0)

    def ended(self, ended: Ended) -> None:
        """How a request ended and how good its prediction was; a cut answer does not tell."""
        self.requests.labels(ended.how).inc()
        if ended.how == "left":
            self.aborts.labels("client-left").inc()
        outcome, finished = ended.outcome, ended.finished
        if finished is None:
            return
        if finished.score is not None:
            for decile, share in enumerate(finished.score.pit_deciles):
                if share:
                    self.pit.labels(str(decile)).inc(share)
        if finished.turn is not None:
            _tell(finished.turn)
        if outcome is not None and not outcome.censored:
            self.error.observe(abs(finished.predicted_mean_tokens - outcome.output_tokens))

    def exposition(self) -> bytes:
        """The text for a scrape."""
        return generate_latest(self.registry)


def _tell(turn: Turn) -> None:
    facts = {"model": turn.model[:LOGGED_MODEL_CHARACTERS], "used": turn.fallback, "skill": round(turn.skill, 3)}
    if turn.fallback is None:
        _log.info("predictions use the whole chain again", extra=facts)
    else:
        _log.warning("predictions are worse than without neighbours; one level is used alone", extra=facts)


def _rests_on(source: str) -> str:
    return "prior" if source == "prior" else "history"


class GateCollector(Collector):
    """Reads the gate when it is scraped."""

    def __init__(self, gate: Gate, telemetry: Telemetry, monitor: EngineMonitor) -> None:
        self._gate = gate
        self._telemetry = telemetry
        self._monitor = monitor

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Queue and capacity now."""
        now = self._gate.snapshot()
        depth = GaugeMetricFamily("sagesched_queue_depth", "Requests that wait", labels=("class",))
        for name in self._telemetry.classes:
            depth.add_metric((name,), now.waiting_by_class.get(name, 0))
        yield depth
        yield GaugeMetricFamily("sagesched_queue_age_max_seconds", "Age of the oldest request that waits", now.oldest_s)
        yield GaugeMetricFamily("sagesched_queue_bytes", "Bodies of requests that wait", now.waiting_bytes)
        yield GaugeMetricFamily(
            "sagesched_predicted_waiting_tokens",
            "Prompts and predicted outputs of what waits, here and in the engine",
            now.predicted_waiting_tokens,
        )
        yield GaugeMetricFamily(
            "sagesched_predicted_waiting_seconds", "About how long the engine needs for it", now.predicted_waiting_s
        )
        yield from families(self._monitor.series, now.waiting)
        yield GaugeMetricFamily("sagesched_running", "Requests in the engine", now.running)
        yield GaugeMetricFamily("sagesched_slots", "Slots of the engine, 0 when unknown", now.slots or 0)
        yield GaugeMetricFamily(
            "sagesched_kv_tokens", "KV cache of the engine in tokens, 0 when unknown", now.kv_tokens or 0
        )
        yield GaugeMetricFamily(
            "sagesched_history_points", "Finished requests remembered", len(self._gate.ranking.predictor.window)
        )
        yield CounterMetricFamily(
            "sagesched_length_changes",
            "Times that lengths had changed and older records counted for less",
            self._gate.ranking.changes,
        )
