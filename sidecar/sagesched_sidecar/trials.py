"""When an engine is tried out: while only a trial can tell, the engine and the gate are idle, and not too often."""

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp

from sagesched.engine_priority import engine_priority
from sagesched.hint import Hint, encode
from sagesched.settings import ModeName
from sagesched.waiting import Rank
from sagesched_sidecar.engine_mode import EngineMode, Finding
from sagesched_sidecar.gate import Gate
from sagesched_sidecar.monitor import EngineMonitor
from sagesched_sidecar.trial import Trial

PAUSES_SECONDS = (0.0, 5.0, 30.0, 120.0, 600.0)
"""Before the first trial of an engine, the second, and so on; the last for all later ones."""


class Trials:
    """Starts trials. `look` is called after each look of the monitor."""

    def __init__(
        self,
        mode: EngineMode,
        gate: Gate,
        monitor: EngineMonitor,
        *,
        base_url: str,
        api_key: str | None,
        ended: Callable[[Finding], None],
    ) -> None:
        self._mode = mode
        self._gate = gate
        self._monitor = monitor
        self._base_url = base_url
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._ended = ended
        self._made = 0
        self._due_s = 0.0
        self._task: asyncio.Task[None] | None = None

    def look(self) -> None:
        """Start a trial if it is time for one; forget what an engine showed that is gone."""
        if not self._monitor.reachable:
            self._made, self._due_s = 0, 0.0
            self._mode.engine_left()
            return
        running = self._task is not None and not self._task.done()
        if running or not self._mode.wants_trial or self._gate.now_s < self._due_s or not self._idle():
            return
        if self._gate.slots is None:
            self._mode.found(Finding("undecided", "engine.slots is needed to try the engine out, and is not known"))
            return
        self._task = asyncio.create_task(self._try(self._mode.now.configured, self._gate.slots))

    def close(self) -> None:
        """End a trial that runs."""
        if self._task is not None:
            self._task.cancel()

    def _idle(self) -> bool:
        return self._quiet() and not self._monitor.state.running and not self._monitor.state.waiting

    def _quiet(self) -> bool:
        ranking = self._gate.ranking
        return not ranking.waiting_count and not ranking.running_count

    async def _try(self, mode: ModeName, slots: int) -> None:
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        async with aiohttp.ClientSession(connector=connector, headers=self._headers) as session:
            finding = await Trial(session, self._base_url, slots, MARKS[mode], self._quiet).run()
        self._due_s = self._gate.now_s + PAUSES_SECONDS[min(self._made + 1, len(PAUSES_SECONDS) - 1)]
        self._made += 1
        self._ended(finding)
        if self._mode.now.configured == mode and self._monitor.reachable:
            self._mode.found(finding)


def _by_priority(first: bool) -> dict[str, Any]:
    return {"priority": engine_priority(Rank(0, -1.0 if first else 1.0, 0.0, ""))}


def _by_hint(first: bool) -> dict[str, Any]:
    told = Hint(lengths=(1.0 if first else 100_000.0,), weights=(1.0,), priority=-1 if first else 1)
    return {"vllm_xargs": encode(told)}


MARKS: dict[ModeName, Callable[[bool], dict[str, Any]]] = {"priority": _by_priority, "engine": _by_hint}
"""How each mode tells the engine who goes first."""
