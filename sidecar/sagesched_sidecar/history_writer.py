"""Writes what the window learns to the store, off the event loop: put, batch, append, tell whoever waits.

It fails open: a store that fails costs records, counted, and no request. A server that is away for a while costs those
that the queue does not hold: the rest is written once it is back.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from sagesched_sidecar.history_metrics import HistoryMetrics
from sagesched_sidecar.store_line import LIVES_ON, StoreLine
from sagesched_store.loading import newest_window
from sagesched_store.protocol import Store, StoreError
from sagesched_store.record import Record

_T = TypeVar("_T")
MAX_WAITING = 4096
MAX_BATCH = 256
RETRY_SECONDS = 10.0
"""After a failure that the next call would repeat, until the store is tried again."""
CLOSE_SECONDS = 10.0

_log = logging.getLogger(__name__)


class NotStoredError(Exception):
    """A record did not get to the store, or not yet; `reason` says why in a word."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"not stored: {reason}")
        self.reason = reason


class _Item(NamedTuple):
    """A record on its way."""

    record: Record
    fate: "asyncio.Future[str]"
    """Why it was not written; empty once it is. A value, as nobody needs to ask."""
    put_s: float


class _Ask(NamedTuple):
    """A call that somebody waits for."""

    call: Callable[[Store], Any]
    answer: "asyncio.Future[Any]"


class HistoryWriter:
    """Its public methods belong to the event loop's thread; `_run` and what it calls, to the writer's own.

    `linger_s`: how long a record waits for others to go with it.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        metrics: HistoryMetrics,
        *,
        max_waiting: int = MAX_WAITING,
        retry_s: float = RETRY_SECONDS,
        linger_s: float = 0.0,
    ) -> None:
        self._line = StoreLine(open_store, metrics, retry_s)
        self._metrics = metrics
        self._max_waiting = max_waiting
        self._linger_s = linger_s
        self._waiting: deque[_Item] = deque()
        self._asks: deque[_Ask] = deque()
        self._writing: list[_Item] = []
        self._held_until_s = 0.0
        self._wake = threading.Condition()
        self._closing = False
        self._last: asyncio.Future[str] | None = None
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="history", daemon=True)

    @property
    def trouble(self) -> str:
        """Why the last call to the store failed; empty when it did not."""
        return self._line.trouble

    async def open(self, rows: int, models: tuple[str, ...] = ()) -> list[Record]:
        """Open the store and begin to write. Gives its newest records in order of time; none where it has trouble.

        Raises StoreError for a folder that cannot be written to, which is the operator's to mend.
        """
        self._thread.start()
        try:
            return await self.load(rows, models)
        except StoreError as error:
            if error.reason == "unwritable":
                raise
            return []

    async def load(self, rows: int, models: tuple[str, ...] = ()) -> list[Record]:
        """The window as the store has it, in order of time. Raises StoreError."""
        records, health = await self.ask(lambda store: (newest_window(store, rows, models), store.health))
        self._metrics.loaded.set(len(records))
        self._metrics.damaged.set(health.damaged_records)
        if health.damaged_records or health.set_aside:
            _log.error("the stored history was damaged; what is readable is kept", extra=health._asdict())
        return records

    async def ask(self, call: Callable[[Store], _T]) -> _T:
        """What a call to the store gives, made between two batches. Raises StoreError."""
        answer: asyncio.Future[_T] = self._loop.create_future()
        with self._wake:
            if self._closing:
                raise StoreError("closed", "the store is closed")
            self._asks.append(_Ask(call, answer))
            self._wake.notify()
        return await answer

    def put(self, record: Record) -> "asyncio.Future[str]":
        """Have it written; what `durable` takes. Never waits and never raises: what is too much is dropped."""
        item = _Item(record, self._loop.create_future(), time.monotonic())
        self._last = item.fate
        with self._wake:
            full = self._closing or len(self._waiting) >= self._max_waiting
            if not full:
                self._waiting.append(item)
                if len(self._waiting) in (1, MAX_BATCH):
                    self._wake.notify()
        if full:
            self._end([item], "closed" if self._closing else "queue-full")
        return item.fate

    async def durable(self, fate: "asyncio.Future[str]") -> None:
        """Returns once the record of that fate outlives the process. Raises NotStoredError when it will not, or when it
        could not be written at the first try."""
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
        self._end([*self._writing, *self._waiting], "closed")

    def _run(self) -> None:
        while (work := self._next()) is not None:
            if isinstance(work, _Ask):
                self._answer(work)
            else:
                self._write(work)
                self._writing = []
        self._line.close()

    def _next(self) -> "_Ask | list[_Item] | None":
        """Waits for what is to be done; None when it is time to end."""
        with self._wake:
            while True:
                if self._asks:
                    return self._asks.popleft()
                wait_s = self._wait_s()
                if self._waiting and wait_s <= 0:
                    self._writing = [self._waiting.popleft() for _ in range(min(MAX_BATCH, len(self._waiting)))]
                    return self._writing
                if self._closing:
                    return None
                self._wake.wait(wait_s if self._waiting else None)

    def _wait_s(self) -> float:
        """How long what waits is to wait on."""
        if self._closing or not self._waiting:
            return 0.0
        full = len(self._waiting) >= MAX_BATCH
        ready_s = 0.0 if full else self._waiting[0].put_s + self._linger_s
        return max(ready_s, self._held_until_s) - time.monotonic()

    def _write(self, batch: list[_Item]) -> None:
        begun_s = time.perf_counter()
        try:
            self._line.call(lambda store: store.append([item.record for item in batch]))
        except StoreError as error:
            if error.reason in LIVES_ON and self._line.is_open and not self._closing:
                self._hold(batch, error.reason)
            else:
                self._later(self._end, batch, error.reason)
        except Exception as error:  # whatever a store trips over, the next batch is tried
            _log.exception("records were not written", extra={"problem": type(error).__name__})
            self._later(self._end, batch, "error")
        else:
            self._metrics.seconds.observe(time.perf_counter() - begun_s)
            self._metrics.writes.inc(len(batch))
            self._later(self._end, batch, "")

    def _hold(self, batch: list[_Item], reason: str) -> None:
        """The store is away: these wait for it, and whoever waits for them need not."""
        with self._wake:
            self._waiting.extendleft(reversed(batch))
            self._held_until_s = self._line.retry_at_s
        self._later(_tell, batch, reason)

    def _answer(self, ask: _Ask) -> None:
        try:
            result = self._line.call(ask.call)
        except Exception as error:
            self._later(_set, ask.answer.set_exception, ask.answer, error)
        else:
            self._later(_set, ask.answer.set_result, ask.answer, result)

    def _later(self, call: Callable[..., None], *arguments: object) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to hear it
            self._loop.call_soon_threadsafe(call, *arguments)

    def _end(self, items: list[_Item], reason: str) -> None:
        """Their fate is known, and does not change any more."""
        if reason and items:
            self._metrics.dropped.labels(reason).inc(len(items))
        _tell(items, reason)


def _tell(items: list[_Item], reason: str) -> None:
    for item in items:
        if not item.fate.done():
            item.fate.set_result(reason)


def _set(setter: Callable[[Any], None], answer: "asyncio.Future[Any]", value: object) -> None:
    if not answer.done():  # whoever asked may be gone
        setter(value)
