"""Counts of the history on disk."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5)


class HistoryMetrics:
    """Reasons are the few words of a StoreError and of a writer."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.writes = Counter("sagesched_history_writes_total", "Records in the store", registry=registry)
        self.dropped = Counter(
            "sagesched_history_write_dropped_total", "Records that the store did not get", ["reason"], registry=registry
        )
        self.seconds = Histogram(
            "sagesched_history_write_seconds", "A batch, until it was in the store", buckets=_SECONDS, registry=registry
        )
        self.failures = Counter(
            "sagesched_history_store_failures_total", "Times the store failed", ["reason"], registry=registry
        )
        self.loaded = Gauge("sagesched_history_loaded_rows", "Records read from the store at start", registry=registry)
        self.damaged = Gauge(
            "sagesched_history_damaged_records", "Records of the store that could not be read", registry=registry
        )
        self.pulled = Counter(
            "sagesched_history_pulled_total", "Records of others that the window learnt", registry=registry
        )
        self.skipped = Counter(
            "sagesched_history_pull_skipped_total",
            "Records of others that were too many to be learnt all",
            registry=registry,
        )
        self.pulled_at = Gauge(
            "sagesched_history_pulled_timestamp_seconds", "When what others learnt was last read", registry=registry
        )
