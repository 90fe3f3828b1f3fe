"""/healthz and /metrics of the operator. It is alive while its loop answers; silent watches time out by themselves."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from aiohttp import web

from sagesched_operator.kube import Kube


class Health:
    """When the cluster was last heard of."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last_s = clock()

    def heard(self) -> None:
        """An event came."""
        self._last_s = self._clock()

    @property
    def silent_s(self) -> float:
        """Seconds since the last event, or the start."""
        return self._clock() - self._last_s


@asynccontextmanager
async def serving(health: Health, kube: Kube, port: int) -> AsyncIterator[None]:
    """The port, for as long as the context lasts."""

    async def healthz(_: web.Request) -> web.Response:
        return web.json_response({"alive": True, "silent_s": round(health.silent_s)})

    async def metrics(_: web.Request) -> web.Response:
        lines = [
            "# TYPE sagesched_operator_api_calls_total counter",
            f"sagesched_operator_api_calls_total {kube.calls}",
            "# TYPE sagesched_operator_silent_seconds gauge",
            f"sagesched_operator_silent_seconds {health.silent_s:.1f}",
        ]
        return web.Response(text="\n".join(lines) + "\n")

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/metrics", metrics)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "0.0.0.0", port).start()  # noqa: S104
        yield
    finally:
        await asyncio.wait_for(runner.cleanup(), 5)
