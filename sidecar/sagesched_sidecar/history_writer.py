"""Writes what the window learns to the store, off the event loop: put, batch, append, tell whoever waits.

It fails open: a store that fails costs its records, counted, and no request. It is tried again later.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from sagesched_sidecar.history_metrics import HistoryMetrics
from sagesched_store.protocol import Store, StoreError
from sagesched_store.record import Record

MAX_WAITING = 4096
MAX_BATCH = 256
RETRY_SECONDS = 10.0
"""After a failure that took the store with it, until it is opened again."""
CLOSE_SECONDS = 10.0
_STORE_LIVES_ON = ("disk-full", "unwritable")

_log = logging.getLogger(__name__)


class NotStoredError(Exception):
    """A record did not get to the disk; `reason` says why in a word."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"not stored: {reason}")
        self.reason = reason


class _Item(NamedTuple):
    """A record on its way."""

    record: Record
    fate: "asyncio.Future[str]"
    """Why it was not written; empty once it is on the disk. A value, as nobody needs to ask."""


class HistoryWriter:
    """Its public methods belong to the event loop's thread; `_run` and what it calls, to the writer's own."""

    def __init__(
        self,
        open_store: Callable[[], Store],
        metrics: HistoryMetrics,
        *,
        max_waiting: int = MAX_WAITING,
        retry_s: float = RETRY_SECONDS,
    ) -> None:
        self._open_store = open_store
        self._metrics = metrics
        self._max_waiting = max_waiting
        self._retry_s = retry_s
        self._store: Store | None = None
        self._retry_at_s = 0.0
        self.trouble = ""
        """Why the last batch, or the last opening, failed; empty when it did not."""
        self._waiting: deque[_Item] = deque()
        self._writing: list[_Item] = []
        self._wake = threading.Condition()
        self._closing = False
        self._last: asyncio.Future[str] | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)

    async def open(self, limit: int) -> list[Record]:
        """Open the store and begin to write. Gives its newest records in order of time; none where it has trouble.

        Raises StoreError for a folder that cannot be written to, which is the operator's to mend.
        """
        records = await asyncio.to_thread(self._opened, limit)
        self._thread.start()
        return records

    def put(self, record: Record) -> "asyncio.Future[str]":
        """Have it written; what `durable` takes. Never waits and never raises: what is too much is dropped."""
        item = _Item(record, self._loop.create_future())
        self._last = item.fate
        with self._wake:
            full = self._closing or len(self._waiting) >= self._max_waiting
            if not full:
                self._waiting.append(item)
                self._wake.notify()
        if full:
            self._tell([item], "closed" if self._closing else "queue-full")
        return item.fate

    async def durable(self, fate: "asyncio.Future[str]") -> None:
        """Returns once the record of that fate outlives the process. Raises NotStoredError when it will not."""
        reason = await asyncio.shield(fate)
        if reason:
            raise NotStoredError(reason)

    async def record(self, record: Record) -> None:
        """Put it, and wait until it is durable."""
        await self.durable(self.put(record))

    async def settled(self) -> None:
        """Returns once the record that was put last is durable, and so all before it that were not dropped."""
        if self._last is not None:
            await self.durable(self._last)

    async def close(self) -> None:
        """Write what waits, within a bound, and close the store."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread.ident is not None:
            await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)
        self._tell([*self._writing, *self._waiting], "closed")

    def _opened(self, limit: int) -> list[Record]:
        try:
            store = self._store = self._open_store()
            records = store.newest(limit)
        except StoreError as error:
            if error.reason == "unwritable":
                raise
            self._failed(error)
            return []
        health = store.health
        self._metrics.loaded.set(len(records))
        self._metrics.damaged.set(health.damaged_records)
        if health.damaged_records or health.set_aside:
            _log.error("the history on disk was damaged; what is readable is kept", extra=health._asdict())
        return records

    def _run(self) -> None:
        while self._take_batch():
            batch = self._writing
            reason = self._written([item.record for item in batch])
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to hear it
                self._loop.call_soon_threadsafe(self._tell, batch, reason)
        if self._store is not None:
            with contextlib.suppress(StoreError):
                self._store.close()

    def _take_batch(self) -> bool:
        """Waits for records; False when it is time to end."""
        with self._wake:
            self._wake.wait_for(lambda: self._waiting or self._closing)
            self._writing = [self._waiting.popleft() for _ in range(min(MAX_BATCH, len(self._waiting)))]
            return bool(self._writing)

    def _written(self, records: list[Record]) -> str:
        """Why they were not written; empty when they were."""
        store = self._store or self._reopened()
        if store is None:
            return self.trouble
        begun_s = time.perf_counter()
        try:
            store.append(records)
        except StoreError as error:
            self._failed(error)
            return error.reason
        except Exception as error:  # whatever a store trips over, the next batch is tried
            _log.exception("records were not written", extra={"problem": type(error).__name__})
            return "error"
        self.trouble = ""
        self._metrics.seconds.observe(time.perf_counter() - begun_s)
        self._metrics.writes.inc(len(records))
        return ""

    def _reopened(self) -> Store | None:
        if time.monotonic() < self._retry_at_s:
            return None
        try:
            self._store = self._open_store()
        except StoreError as error:
            self._failed(error)
            return None
        self.trouble = ""
        return self._store

    def _failed(self, error: StoreError) -> None:
        """Count it, say it once, and give up the store unless it can go on."""
        if error.reason != self.trouble:
            _log.error("history is not written to the disk", extra={"reason": error.reason, "problem": str(error)})
        self.trouble = error.reason
        self._metrics.failures.labels(error.reason).inc()
        if error.reason in _STORE_LIVES_ON and self._store is not None:
            return
        self._retry_at_s = time.monotonic() + self._retry_s
        store, self._store = self._store, None
        if store is not None:
            with contextlib.suppress(StoreError):
                store.close()

    def _tell(self, items: list[_Item], reason: str) -> None:
        """Their fate is known, if it was not before."""
        untold = [item for item in items if not item.fate.done()]
        if reason and untold:
            self._metrics.dropped.labels(reason).inc(len(untold))
        for item in untold:
            item.fate.set_result(reason)
