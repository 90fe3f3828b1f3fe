"""The history that outlives the process: loaded into the window at start, written as the window learns."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from prometheus_client import CollectorRegistry

from sagesched.history import Vector
from sagesched.ranking import Ranking
from sagesched.request import Outcome, Request
from sagesched.settings import History, SettingsError
from sagesched_sidecar.history_metrics import HistoryMetrics
from sagesched_sidecar.history_writer import HistoryWriter
from sagesched_store.apart import StoreApart
from sagesched_store.protocol import Store, StoreError
from sagesched_store.record import Record, Space, record_of

if TYPE_CHECKING:
    from sagesched.embed import Embedder

_log = logging.getLogger(__name__)


class DurableHistory:
    """With `history.store: memory` it keeps nothing, and everything here is done at once."""

    def __init__(
        self,
        history: History,
        embedder: "Embedder",
        registry: CollectorRegistry,
        *,
        open_store: Callable[[], Store] | None = None,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """`open_store` stands in for what the settings name."""
        self._history = history
        self._embedder = embedder.name
        self._wall_clock = wall_clock
        self._metrics = HistoryMetrics(registry)
        space = Space(embedder.name, embedder.dimensions)
        if open_store is None and history.path is not None:
            open_store = partial(StoreApart, Path(history.path), space, history.kept_rows)
        self._writer = None if open_store is None else HistoryWriter(open_store, self._metrics)

    @asynccontextmanager
    async def loaded_into(self, ranking: Ranking) -> AsyncIterator[None]:
        """Open the store and let the window learn its newest records; trouble leaves the window as it is. On leaving,
        write what waits and close the store, within a bound. Raises SettingsError for a path that cannot be written."""
        if self._writer is None:
            yield
            return
        begun_s = time.perf_counter()
        try:
            records = await self._opened(self._writer)
            for record in records:
                ranking.learn(*_learnable(record))
            _log.info("history loaded", extra={"rows": len(records), "seconds": time.perf_counter() - begun_s})
            yield
        finally:
            await self._writer.close()

    async def _opened(self, writer: HistoryWriter) -> list[Record]:
        try:
            return await writer.open(self._history.window_rows)
        except StoreError as error:
            raise SettingsError(f"history.path: cannot be written to: {error}") from None

    def record(self, request: Request, embedding: Vector, outcome: Outcome) -> Awaitable[None]:
        """The window learnt this: have it written (see admission.Journal). Awaited, it returns once the record outlives
        the process, and raises NotStoredError when it will not; it need not be awaited."""
        if self._writer is None:
            return _Written(None, None)
        vector = np.asarray(embedding, dtype="<f4").tobytes()
        fate = self._writer.put(record_of(request, vector, self._embedder, outcome, self._wall_clock()))
        return _Written(self._writer, fate)

    async def settled(self) -> None:
        """Returns once everything learnt so far outlives the process. Raises NotStoredError when the last of it will
        not. Where nothing is kept on a disk it returns at once."""
        if self._writer is not None:
            await self._writer.settled()

    def status(self) -> dict[str, Any]:
        """For people."""
        facts: dict[str, Any] = {"store": self._history.store}
        if self._writer is not None:
            facts |= {"path": self._history.path, "rows": self._history.kept_rows, "trouble": self._writer.trouble}
        return facts


class _Written(NamedTuple):
    """A record on its way: to be awaited as often as anybody likes, or never."""

    writer: HistoryWriter | None
    fate: asyncio.Future[str] | None

    def __await__(self) -> Generator[Any, None, None]:
        if self.writer is not None and self.fate is not None:
            yield from self.writer.durable(self.fate).__await__()


def _learnable(record: Record) -> tuple[Request, Vector, Outcome]:
    request = Request(
        id=record.request,
        model=record.model,
        tenant=record.tenant,
        prompt_tokens=record.prompt_tokens,
        features=record.features,
    )
    vector = np.frombuffer(record.embedding, dtype="<f4").astype(np.float32)
    return request, vector, Outcome(output_tokens=record.output_tokens, censored=record.censored)
