"""Puts the parts together, opens the port, and drains it in two phases."""

import asyncio
import contextlib
import json
import logging
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import web

from sagesched.gittins import Stopping
from sagesched.ranking import Ranking
from sagesched_sidecar.admin import Admin
from sagesched_sidecar.admission import Admission
from sagesched_sidecar.calibration import CalibrationCollector
from sagesched_sidecar.errors import DRAINING
from sagesched_sidecar.gate import Gate
from sagesched_sidecar.http_server import HttpServer
from sagesched_sidecar.monitor import EngineMonitor
from sagesched_sidecar.options import Options
from sagesched_sidecar.orders import OrderDesk
from sagesched_sidecar.prompts import PromptEmbedder
from sagesched_sidecar.proxy import Proxy
from sagesched_sidecar.records import Records
from sagesched_sidecar.scheduled import Scheduler
from sagesched_sidecar.seed import learn_from_file
from sagesched_sidecar.telemetry import GateCollector, Telemetry
from sagesched_sidecar.upstream import MAX_HEADER_BYTES, Upstream

if TYPE_CHECKING:
    from sagesched.embed import Embedder

LAST_WORDS_SECONDS = 0.25
"""After the drain: what answers that are being written get to be sent."""
LINGER_SECONDS = 2.0
"""How long the rest of a refused body is read, so that the client reads the refusal."""

_log = logging.getLogger(__name__)


class Sidecar(NamedTuple):
    """The parts of a running sidecar."""

    proxy: Proxy
    gate: Gate
    admin: Admin
    monitor: EngineMonitor
    address: tuple[str, int]


@asynccontextmanager
async def running(options: Options, embedder: "Embedder") -> AsyncIterator[Sidecar]:
    """A sidecar that listens. Leaving cuts whatever is still open."""
    settings = options.settings
    telemetry, records, clock = Telemetry(settings), Records(), time.monotonic
    ranking = Ranking(settings, stopping=Stopping.NEVER, dimensions=embedder.dimensions)
    if settings.history.seed_file is not None:
        learn_from_file(Path(settings.history.seed_file), ranking, embedder)
    gate = Gate(ranking, settings.queue, settings.engine, clock=clock, observer=telemetry)
    telemetry.registry.register(GateCollector(gate, telemetry))
    telemetry.registry.register(CalibrationCollector(ranking.scoreboard))
    monitor = EngineMonitor(options.upstream, gate, settings.engine.metrics_interval_seconds, options.api_key)
    admin = Admin(settings, gate, monitor, telemetry, records)
    prompts = PromptEmbedder(embedder, settings.embedding.deadline_seconds, telemetry.troubled)
    admission = Admission(gate, prompts, telemetry, records, clock=clock)
    desk = OrderDesk(
        settings.scheduling.classes,
        admission.estimate,
        ask_for_usage=settings.engine.ask_for_usage,
        unknown_class=telemetry.unknown_classes.inc,
    )
    async with Upstream(options.upstream) as upstream:
        scheduler = Scheduler(
            admission, upstream, desk, max_body_bytes=settings.server.max_body_bytes, api_key=options.api_key
        )
        proxy = Proxy(upstream, scheduler, admin.handlers(), api_key=options.api_key, rejected=telemetry.rejected_for)
        watching = asyncio.create_task(monitor.run())
        try:
            async with _listening(proxy, options.host, options.port, telemetry.rejected_for) as address:
                yield Sidecar(proxy, gate, admin, monitor, address)
        finally:
            watching.cancel()
            prompts.close()


@asynccontextmanager
async def _listening(
    proxy: Proxy, host: str, port: int, rejected: Callable[[str], None]
) -> AsyncIterator[tuple[str, int]]:
    server = HttpServer(
        proxy,
        rejected=rejected,
        handler_cancellation=True,
        auto_decompress=False,
        access_log=None,
        max_line_size=MAX_HEADER_BYTES,
        max_field_size=MAX_HEADER_BYTES,
        lingering_time=LINGER_SECONDS,
    )
    runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=LAST_WORDS_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port, backlog=1024).start()
        bound = runner.addresses[0]
        yield bound[0], bound[1]
    finally:
        await runner.cleanup()


async def serve(options: Options, embedder: "Embedder") -> None:
    """Serve until SIGTERM or SIGINT, then drain; a second signal ends the drain."""
    signals: asyncio.Queue[int] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, signals.put_nowait, number)
    async with running(options, embedder) as sidecar:
        host, port = sidecar.address
        _say_ready(host, port, options.upstream)
        await signals.get()
        await drain(sidecar, options.settings.server.drain_seconds, signals.get())
    _log.info("ended")


def _say_ready(host: str, port: int, upstream: str) -> None:
    """One JSON line on stdout, whatever the log level: where the sidecar listens."""
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    ready = {"event": "ready", "url": url, "listening": {"host": host, "port": port}, "upstream": upstream}
    print(json.dumps(ready), flush=True)


async def drain(sidecar: Sidecar, drain_s: float, at_once: Awaitable[object]) -> None:
    """Phase one: not ready, new requests get 503, open ones go on. Phase two, after `drain_s` or when `at_once` is
    done: what waits gets 503, and what still runs is cut by whoever closes the port."""
    _log.info("draining", extra={"seconds": drain_s})
    sidecar.admin.draining = True
    sidecar.gate.close(DRAINING)
    over = [asyncio.ensure_future(at_once), asyncio.ensure_future(sidecar.proxy.idle.wait())]
    await asyncio.wait(over, timeout=drain_s, return_when=asyncio.FIRST_COMPLETED)
    for waiting in over:
        waiting.cancel()
    sidecar.gate.refuse_waiting(DRAINING)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(sidecar.proxy.idle.wait(), LAST_WORDS_SECONDS)
