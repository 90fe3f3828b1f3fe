"""Puts the parts together, opens the port, and drains it in two phases."""

import asyncio
import contextlib
import json
import logging
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from aiohttp import web

from sagesched.gittins import Stopping
from sagesched.ranking import Ranking
from sagesched.settings import ModeName, Settings
from sagesched_sidecar.admin import Admin
from sagesched_sidecar.admission import Admission
from sagesched_sidecar.calibration import CalibrationCollector
from sagesched_sidecar.comparing import ComparingCollector
from sagesched_sidecar.durable_history import DurableHistory
from sagesched_sidecar.engine_mode import EngineMode, Mode
from sagesched_sidecar.errors import DRAINING
from sagesched_sidecar.gate import Entry, Gate
from sagesched_sidecar.gateway import Gateway
from sagesched_sidecar.http_server import HttpServer
from sagesched_sidecar.live import Effective, LiveSettings
from sagesched_sidecar.mode_metrics import ModeMetrics
from sagesched_sidecar.monitor import EngineMonitor
from sagesched_sidecar.options import Options
from sagesched_sidecar.orders import OrderDesk
from sagesched_sidecar.prompts import PromptEmbedder
from sagesched_sidecar.proxy import Proxy
from sagesched_sidecar.records import Records
from sagesched_sidecar.scheduled import Scheduler
from sagesched_sidecar.seed import learn_from_file
from sagesched_sidecar.settings_file import Loaded
from sagesched_sidecar.shadow import Shadow
from sagesched_sidecar.shadow_estimate import ShadowEstimate
from sagesched_sidecar.telemetry import GateCollector, Telemetry
from sagesched_sidecar.tls import read_tls
from sagesched_sidecar.traffic import Traffic
from sagesched_sidecar.trials import Trials
from sagesched_sidecar.upstream import MAX_HEADER_BYTES, Upstream

if TYPE_CHECKING:
    from sagesched.embed import Embedder
    from sagesched_sidecar.rpc.door import Door

LAST_WORDS_SECONDS = 0.25
"""After the drain: what answers that are being written get to be sent."""
LINGER_SECONDS = 2.0
"""How long the rest of a refused body is read, so that the client reads the refusal."""

ENTRIES: dict[ModeName, Entry] = {"gate": "room", "priority": "ranked", "engine": "ranked", "shadow": "all"}
"""Who may go to the engine in each mode."""

_log = logging.getLogger(__name__)


class Sidecar(NamedTuple):
    """The parts of a running sidecar."""

    proxy: Proxy
    gate: Gate
    admin: Admin
    monitor: EngineMonitor
    live: LiveSettings
    history: DurableHistory
    traffic: Traffic
    address: tuple[str, int]
    rpc: "Door | None"
    """The gRPC door; None where it stays shut."""


@asynccontextmanager
async def running(options: Options, embedder: "Embedder") -> AsyncIterator[Sidecar]:
    """A sidecar that listens. Leaving cuts whatever is still open."""
    settings = options.settings
    telemetry, records, clock = Telemetry(), Records(), time.monotonic
    live = LiveSettings(options.source, options.loaded or Loaded.without_file(settings))
    ranking = Ranking(settings, stopping=Stopping.NEVER, dimensions=embedder.dimensions)
    models = _models_of(settings)
    history = DurableHistory(settings.history, embedder, telemetry.registry, models=models)
    if settings.history.seed_file is not None:
        learn_from_file(Path(settings.history.seed_file), ranking, embedder)
    gate = Gate(ranking, settings.queue, settings.engine, clock=clock, observer=telemetry)
    telemetry.registry.register(ComparingCollector(gate.comparing))
    monitor = EngineMonitor(options.upstream, gate, settings.engine.metrics_interval_seconds, options.api_key)
    telemetry.registry.register(GateCollector(gate, telemetry, monitor))
    telemetry.registry.register(CalibrationCollector(ranking.scoreboard))
    modes = ModeMetrics(telemetry.registry)
    mode = EngineMode(settings.engine, lambda now: _serve_by(now, gate, modes))
    trials = Trials(mode, gate, monitor, base_url=options.upstream, api_key=options.api_key, ended=modes.tried)
    estimate = ShadowEstimate(gate, lambda: live.now.settings.scheduling.max_wait_seconds, modes.shadowed)
    admin = Admin(live, gate, monitor, telemetry, records, history, mode, estimate)
    prompts = PromptEmbedder(embedder, settings.embedding.deadline_seconds, telemetry.troubled)
    admission = Admission(gate, prompts, telemetry, records, clock=clock, journal=history)
    gateway = Gateway(settings, modes.gateway_header)
    desk = OrderDesk(
        live,
        admission.estimate,
        gateway,
        unknown_class=telemetry.unknown_classes.inc,
        claimed=lambda how: modes.client_priorities.labels(how).inc(),
    )
    _keep_up(live, gate, monitor, prompts, telemetry)
    live.also(lambda now: mode.configure(now.settings.engine))
    live.also(lambda now: gateway.apply(now.settings))
    async with history.loaded_into(ranking), Upstream(options.upstream) as upstream:
        shadow = Shadow(admission, upstream, desk, estimate, live, api_key=options.api_key)
        scheduler = Scheduler(admission, upstream, desk, live, mode, shadow, api_key=options.api_key)
        traffic = Traffic()
        proxy = Proxy(
            upstream,
            scheduler,
            admin.handlers(),
            mode,
            api_key=options.api_key,
            rejected=telemetry.rejected_for,
            traffic=traffic,
        )
        async with AsyncExitStack() as stack:
            stack.callback(prompts.close)
            stack.callback(trials.close)
            rpc: Door | None = None
            if settings.grpc.listen:
                rpc = await stack.enter_async_context(_rpc_door(live, admission, desk, traffic, admin))

            def seen() -> None:
                trials.look()
                if rpc is not None:
                    rpc.health.look(ready=admin.ready)

            for task in (monitor.run(seen), live.watch(options.settings_poll_s)):
                stack.callback(asyncio.create_task(task).cancel)
            listening = _listening(proxy, options.host, options.port, telemetry.rejected_for)
            address = await stack.enter_async_context(listening)
            yield Sidecar(proxy, gate, admin, monitor, live, history, traffic, address, rpc)


@asynccontextmanager
async def _rpc_door(
    live: LiveSettings, admission: Admission, desk: OrderDesk, traffic: Traffic, admin: Admin
) -> AsyncIterator["Door"]:
    """The gRPC door; nothing of grpc is loaded before."""
    from sagesched_sidecar.rpc.door import open_door
    from sagesched_sidecar.rpc.introspection import Introspection
    from sagesched_sidecar.rpc.scheduling import Scheduling

    dimensions = admission.gate.ranking.predictor.window.dimensions
    services = (
        Scheduling(admission, desk, traffic, live, dimensions=dimensions),
        Introspection(admin, admission.gate, admission.clock),
    )
    handlers = [service.handler() for service in services]
    settings = live.now.settings.grpc
    tls = read_tls(settings)
    async with open_door(settings, tls, handlers, ready=admin.ready, last_words_s=LAST_WORDS_SECONDS) as door:
        yield door


def _models_of(settings: Settings) -> tuple[str, ...]:
    """The models whose history is of use here, the unnamed among them; none where that is not known."""
    names = settings.engine.facts.served_models
    return (names[0], "") if names else ()


def _serve_by(mode: Mode, gate: Gate, modes: ModeMetrics) -> None:
    """Let the gate serve in the mode that is in effect now."""
    gate.set_entry(ENTRIES[mode.effective])
    modes.mode(mode)


def _keep_up(
    live: LiveSettings, gate: Gate, monitor: EngineMonitor, prompts: PromptEmbedder, telemetry: Telemetry
) -> None:
    """Who takes changed settings over. All else looks at `live.now` when it decides."""

    def intervals(now: Effective) -> None:
        monitor.interval_s = now.settings.engine.metrics_interval_seconds
        prompts.deadline_s = now.settings.embedding.deadline_seconds

    live.also(lambda now: gate.apply(now.settings))
    live.also(intervals)
    live.observe(lambda reload: telemetry.reloaded(live.now, reload))
    telemetry.configured(live.now, live.last)


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
        _say_ready(sidecar, options.upstream)
        await signals.get()
        await drain(sidecar, sidecar.live.now.settings.server.drain_seconds, signals.get())
    _log.info("ended")


def _say_ready(sidecar: Sidecar, upstream: str) -> None:
    """One JSON line on stdout, whatever the log level: where the sidecar listens."""
    host, port = sidecar.address
    url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    listening: dict[str, object] = {"host": host, "port": port}
    if sidecar.rpc is not None:
        listening["grpc"] = sidecar.rpc.addresses
    ready = {"event": "ready", "url": url, "listening": listening, "upstream": upstream}
    print(json.dumps(ready), flush=True)


async def drain(sidecar: Sidecar, drain_s: float, at_once: Awaitable[object]) -> None:
    """Phase one: not ready, new requests get 503, open ones go on. Phase two, after `drain_s` or when `at_once` is
    done: what waits gets 503, and what still runs is cut by whoever closes the port."""
    _log.info("draining", extra={"seconds": drain_s})
    if sidecar.rpc is not None:
        await sidecar.rpc.health.drain()
    sidecar.admin.draining = True
    sidecar.gate.close(DRAINING)
    over = [asyncio.ensure_future(at_once), asyncio.ensure_future(sidecar.traffic.idle.wait())]
    await asyncio.wait(over, timeout=drain_s, return_when=asyncio.FIRST_COMPLETED)
    for waiting in over:
        waiting.cancel()
    sidecar.gate.refuse_waiting(DRAINING)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(sidecar.traffic.idle.wait(), LAST_WORDS_SECONDS)
