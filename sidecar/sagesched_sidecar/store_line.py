"""The line to a store: opened, held while it works, let go when it fails, tried again later. It belongs to one thread.

It is a circuit breaker: after a failure that the next call would only repeat, calls fail at once until `retry_s` is
over.
"""

import contextlib
import logging
import time
from collections.abc import Callable
from typing import TypeVar

from sagesched_sidecar.history_metrics import HistoryMetrics
from sagesched_store.protocol import Store, StoreError

_T = TypeVar("_T")
TRIED_AGAIN = ("disk-full", "unwritable", "rejected")
"""The next call may well succeed."""
LIVES_ON = ("unreachable", "no-collection", "refused", "schema")
"""A server's trouble: the store asks it anew by itself, but not at once."""

_log = logging.getLogger(__name__)


class StoreLine:
    """See the module."""

    def __init__(self, open_store: Callable[[], Store], metrics: HistoryMetrics, retry_s: float) -> None:
        self._open_store = open_store
        self._metrics = metrics
        self._retry_s = retry_s
        self._store: Store | None = None
        self.retry_at_s = 0.0
        """By time.monotonic(): before that no call is made."""
        self.trouble = ""
        """Why the last call, or the last opening, failed; empty when it did not."""

    @property
    def is_open(self) -> bool:
        """Whether there is a store to ask again."""
        return self._store is not None

    def call(self, call: Callable[[Store], _T]) -> _T:
        """What the call gives. Raises StoreError, at once where the store just failed."""
        if self.trouble and time.monotonic() < self.retry_at_s:
            raise StoreError(self.trouble, "the store failed a moment ago")  # type: ignore[arg-type]  # a reason
        try:
            self._store = self._store or self._open_store()
            result = call(self._store)
        except StoreError as error:
            self._failed(error)
            raise
        if self.trouble:
            _log.info("history is written again", extra={"reason": self.trouble})
        self.trouble = ""
        return result

    def close(self) -> None:
        """Close the store, if there is one."""
        store, self._store = self._store, None
        if store is not None:
            with contextlib.suppress(StoreError):
                store.close()

    def _failed(self, error: StoreError) -> None:
        """Count it, say it once, and give up the store unless it can go on."""
        if error.reason != self.trouble:
            _log.error("history is not written", extra={"reason": error.reason, "problem": str(error)})
        self.trouble = error.reason
        self._metrics.failures.labels(error.reason).inc()
        if error.reason in TRIED_AGAIN and self._store is not None:
            return
        self.retry_at_s = time.monotonic() + self._retry_s
        if error.reason not in LIVES_ON:
            self.close()
