"""Follows a shared history: what other sidecars learn comes into this one's window, a little at a time."""

import asyncio
import logging
import time

import numpy as np

from sagesched.history import Vector
from sagesched.ranking import Ranking
from sagesched.request import Outcome, Request
from sagesched_sidecar.history_metrics import HistoryMetrics
from sagesched_sidecar.history_writer import HistoryWriter
from sagesched_store.protocol import StoreError
from sagesched_store.record import Record

PULL_ROWS = 500
"""Records that one look brings; of more, a fair sample."""
TENANTS_EVERY = 15
"""Looks after which the store is asked whose history it still has."""
TURN_ROWS = 100
"""Records learnt in one turn of the event loop: some 2 ms."""

_log = logging.getLogger(__name__)


class HistoryFollower:
    """`since_s`: when the window was filled, or was to be; `loaded`: whether it was; `seeded`: tenants that it had
    before, whose records no store has."""

    def __init__(
        self,
        writer: HistoryWriter,
        ranking: Ranking,
        metrics: HistoryMetrics,
        since_s: float,
        *,
        loaded: bool,
        seeded: set[str],
    ) -> None:
        self._writer = writer
        self._ranking = ranking
        self._metrics = metrics
        self._since_s = since_s
        self._loaded = loaded
        self._looks = 0
        self._seeded = seeded
        self._missing: set[str] = set()
        """Tenants of the window that the store did not have when it was last asked."""

    async def run(self, interval_s: float, models: tuple[str, ...]) -> None:
        """Look again and again, until it is cancelled. A store in trouble is looked at again later."""
        while True:
            await asyncio.sleep(interval_s)
            try:
                await self.look(models)
            except StoreError:
                pass  # counted and logged where the store was asked
            except Exception as error:
                _log.exception("what others learnt was not read", extra={"problem": type(error).__name__})

    async def look(self, models: tuple[str, ...]) -> None:
        """Learn what the others wrote since; first of all the window, where there was none at the start. Raises
        StoreError."""
        if not self._loaded:
            records = await self._writer.load(self._ranking.settings.history.window_rows, models)
            self._loaded = True
            await self._learn(records)
        since_s = self._since_s
        changes = await self._writer.ask(lambda store: store.changes(since_s, PULL_ROWS))
        self._since_s = changes.until_s
        await self._learn([record for record in changes.records if not models or record.model in models])
        self._metrics.skipped.inc(changes.skipped)
        self._metrics.pulled_at.set(time.time())
        if self._looks % TENANTS_EVERY == 0:
            await self._forget_deleted()
        self._looks += 1

    async def _forget_deleted(self) -> None:
        """Whose history was deleted in the store is forgotten here too; twice missed, as one's own records may still be
        on their way."""
        predictor = self._ranking.predictor
        stored = await self._writer.ask(lambda store: store.tenants())
        self._seeded -= stored.keys()
        missing = predictor.window.tenants() - stored.keys() - self._seeded
        if self._writer.trouble:
            missing = set()
        for tenant in missing & self._missing:
            rows = predictor.forget(tenant)
            _log.info("a tenant's history was deleted in the store, and is forgotten", extra={"rows": rows})
        self._missing = missing - self._missing

    async def _learn(self, records: list[Record]) -> None:
        for start in range(0, len(records), TURN_ROWS):
            for record in records[start : start + TURN_ROWS]:
                self._ranking.learn(*learnable(record))
            self._metrics.pulled.inc(len(records[start : start + TURN_ROWS]))
            await asyncio.sleep(0)


def learnable(record: Record) -> tuple[Request, Vector, Outcome]:
    """A record as the window learns it."""
    request = Request(
        id=record.request,
        model=record.model,
        tenant=record.tenant,
        prompt_tokens=record.prompt_tokens,
        features=record.features,
    )
    vector = np.frombuffer(record.embedding, dtype="<f4").astype(np.float32)
    return request, vector, Outcome(output_tokens=record.output_tokens, censored=record.censored)
