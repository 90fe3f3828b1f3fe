"""Metrics of modes, of what clients and gateways say of their requests, and of the shadow's estimate."""

from prometheus_client import CollectorRegistry, Counter, Gauge

from sagesched.hindsight import Waits
from sagesched_sidecar.engine_mode import Finding, Mode


class ModeMetrics:
    """Every label set here is of fixed words: modes and reasons, header names, outcomes."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"sagesched_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str, *labels: str) -> Gauge:
            return Gauge(f"sagesched_{name}", text, labels, registry=registry)

        self._mode = gauge(
            "mode", "The mode that is configured, and the one in effect", "configured", "effective", "reason"
        )
        self._trials = counter("engine_trials_total", "Trials of the engine, by what they found", "verdict")
        self.client_priorities = counter(
            "client_priority_total", "Requests that claimed a place in the engine themselves, by how", "how"
        )
        self._gateway = counter(
            "gateway_header_total", "Headers of gateways, by what became of them", "header", "outcome"
        )
        self._waits = counter("shadow_wait_seconds_total", "Time that requests waited, in either order", "order")
        self._shadowed = counter("shadow_requests_total", "Requests whose wait in either order is known")
        self._saved = gauge("shadow_wait_saved_seconds", "Mean wait that our order would have saved the last requests")

    def mode(self, now: Mode) -> None:
        """Another mode is in effect, or for another reason."""
        self._mode.clear()
        self._mode.labels(now.configured, now.effective, now.reason).set(1)

    def tried(self, finding: Finding) -> None:
        """A trial of the engine has ended."""
        self._trials.labels(finding.verdict).inc()

    def gateway_header(self, header: str, outcome: str) -> None:
        """A gateway's header was looked at."""
        self._gateway.labels(header.lower(), outcome).inc()

    def shadowed(self, waits: Waits, mean_saved_s: float) -> None:
        """What one request waited, and would have waited."""
        self._shadowed.inc()
        self._waits.labels("arrival").inc(waits.waited_s)
        self._waits.labels("policy").inc(waits.would_have_waited_s)
        self._saved.set(mean_saved_s)
