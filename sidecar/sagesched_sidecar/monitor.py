"""Watches the engine: is it there, how large is its KV cache, how many requests can it run at once."""

import asyncio
import logging
from collections.abc import Callable

import aiohttp

from sagesched_sidecar.engine_series import Series, read_series
from sagesched_sidecar.engine_state import EngineState, SlotLearner, read_metrics
from sagesched_sidecar.gate import Gate

TIMEOUT_SECONDS = 5.0
MAX_METRICS_BYTES = 16 << 20

_log = logging.getLogger(__name__)


class EngineMonitor:
    """Polls the engine's /metrics and /health; an engine without either is there when it answers at all."""

    def __init__(self, base_url: str, gate: Gate, interval_s: float, api_key: str | None) -> None:
        self._base_url = base_url
        self._gate = gate
        self.interval_s = interval_s
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._slots = SlotLearner()
        self.reachable = False
        self.state = EngineState()
        self.series: tuple[Series, ...] = ()
        """The engine's own series, for the sidecar's page; none while it is not reachable."""

    async def run(self, seen: Callable[[], None] = lambda: None) -> None:
        """Poll until cancelled; `seen` is called after each look."""
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        # No connection is kept: an engine that serves one connection at a time would serve nobody else.
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, headers=self._headers) as session:
            while True:
                try:
                    await self._look(session)
                except Exception as error:  # whatever an engine's page holds, the next look comes
                    _log.warning("the engine's state cannot be read", extra={"problem": type(error).__name__})
                seen()
                await asyncio.sleep(self.interval_s)

    async def _look(self, session: aiohttp.ClientSession) -> None:
        try:
            status, _ = await self._get(session, "/health")
            reachable = status < 500
            status, text = await self._get(session, "/metrics")
        except (aiohttp.ClientError, TimeoutError, OSError):
            self._set_reachable(False)
            self.series, self.state = (), EngineState()
            return
        self._set_reachable(reachable)
        self.series = read_series(text) if status == 200 else ()
        self._learn(read_metrics(text) if status == 200 else EngineState())

    def _learn(self, state: EngineState) -> None:
        self.state = state
        ranking = self._gate.ranking
        self._slots.see(state, gate_waiting=ranking.waiting_count, gate_running=ranking.running_count)
        self._gate.set_capacity(self._slots.slots, self.state.kv_tokens, self.state.block_tokens)

    async def _get(self, session: aiohttp.ClientSession, path: str) -> tuple[int, str]:
        async with session.get(self._base_url + path, allow_redirects=False) as answer:
            body = bytearray()
            while len(body) < MAX_METRICS_BYTES and (chunk := await answer.content.readany()):
                body += chunk
            return answer.status, body.decode("utf-8", "replace")

    def _set_reachable(self, reachable: bool) -> None:
        if reachable != self.reachable:
            _log.info("engine is %s", "reachable" if reachable else "unreachable", extra={"reachable": reachable})
        self.reachable = reachable
