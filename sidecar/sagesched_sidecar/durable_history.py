"""The history that outlives the process: loaded into the window at start, written as the window learns."""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from prometheus_client import CollectorRegistry

from sagesched.history import Vector
from sagesched.ranking import Ranking
from sagesched.request import Outcome, Request
from sagesched.settings import History, SettingsError
from sagesched_sidecar.history_follower import HistoryFollower, learnable
from sagesched_sidecar.history_metrics import HistoryMetrics
from sagesched_sidecar.history_writer import HistoryWriter
from sagesched_store.apart import StoreApart
from sagesched_store.place import FolderPlace, Place, ServerPlace
from sagesched_store.protocol import Store, StoreError
from sagesched_store.record import Record, Space, record_of

if TYPE_CHECKING:
    from sagesched.embed import Embedder

LINGER_SECONDS = 0.5
"""How long a record waits for others to go to a server with it."""
SERVER_RETRY_SECONDS = 2.0

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
        models: tuple[str, ...] = (),
    ) -> None:
        """`open_store` stands in for what the settings name; `models`: those whose history is loaded, all where none
        are named."""
        self._history = history
        self._models = models
        self._embedder = embedder.name
        self._wall_clock = wall_clock
        self._metrics = HistoryMetrics(registry)
        space = Space(embedder.name, embedder.dimensions)
        place = place_of(history)
        if open_store is None and place is not None:
            open_store = partial(StoreApart, place, space, history.kept_rows)
        self._writer = None if open_store is None else _writer(history, open_store, self._metrics)

    @asynccontextmanager
    async def loaded_into(self, ranking: Ranking) -> AsyncIterator[None]:
        """Open the store and let the window learn its newest records; trouble leaves the window as it is. On leaving,
        write what waits and close the store, within a bound. Raises SettingsError for a path that cannot be written."""
        if self._writer is None:
            yield
            return
        server, seeded = self._history.server, ranking.predictor.window.tenants()
        begun_s, begun_at_s = time.perf_counter(), self._wall_clock()
        following: asyncio.Task[None] | None = None
        try:
            records = await self._opened(self._writer)
            for record in records:
                ranking.learn(*learnable(record))
            _log.info("history loaded", extra={"rows": len(records), "seconds": time.perf_counter() - begun_s})
            if server is not None:
                follower = HistoryFollower(
                    self._writer, ranking, self._metrics, begun_at_s, loaded=not self.trouble, seeded=seeded
                )
                following = asyncio.create_task(follower.run(server.pull_seconds, self._models))
            yield
        finally:
            if following is not None:
                following.cancel()
            await self._writer.close()

    @property
    def trouble(self) -> str:
        """Why the store is not written to; empty where it is, or where there is none."""
        return self._writer.trouble if self._writer is not None else ""

    async def _opened(self, writer: HistoryWriter) -> list[Record]:
        try:
            return await writer.open(self._history.window_rows, self._models)
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
            where = self._history.server.url if self._history.server else self._history.path
            facts |= {"path": where, "rows": self._history.kept_rows, "trouble": self.trouble}
        return facts


class _Written(NamedTuple):
    """A record on its way: to be awaited as often as anybody likes, or never."""

    writer: HistoryWriter | None
    fate: asyncio.Future[str] | None

    def __await__(self) -> Generator[Any, None, None]:
        if self.writer is not None and self.fate is not None:
            yield from self.writer.durable(self.fate).__await__()


def place_of(history: History) -> Place | None:
    """Where the settings want the store; None for memory."""
    if history.path is not None:
        return FolderPlace(history.path)
    server = history.server
    if server is None:
        return None
    return ServerPlace(
        url=server.url,
        prefix=server.collection_prefix,
        api_key_file=server.api_key_file,
        ca_file=server.ca_file,
        timeout_s=server.timeout_seconds,
        writer=secrets.token_hex(8),
    )


def _writer(history: History, open_store: Callable[[], Store], metrics: HistoryMetrics) -> HistoryWriter:
    """On a server others share the room: records go together, and one that is away is waited for."""
    if history.store != "server":
        return HistoryWriter(open_store, metrics)
    return HistoryWriter(open_store, metrics, linger_s=LINGER_SECONDS, retry_s=SERVER_RETRY_SECONDS)
