"""The HTTP server: paths, keys, start and drain."""

import asyncio
import hmac
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web

from sagesched_sim.answering import Answering
from sagesched_sim.engine import Engine
from sagesched_sim.lengths import TopicLengths, TrueLengths, read_lengths
from sagesched_sim.metrics import EngineCollector, registry_for
from sagesched_sim.observations import Observations
from sagesched_sim.options import Options
from sagesched_sim.pacing import PacedEngine
from sagesched_sim.pages import Pages
from sagesched_sim.profile import profile_named
from sagesched_sim.surfaces.ask import Surface
from sagesched_sim.surfaces.chat import ChatSurface
from sagesched_sim.surfaces.completions import CompletionsSurface
from sagesched_sim.surfaces.messages import MessagesSurface
from sagesched_sim.surfaces.responses import ResponsesSurface

MAX_BODY_BYTES = 64 * 2**20
SHAPES_OF = "0.32.0"
"""The vLLM release whose shapes are written."""
FINGERPRINT = f"vllm-{SHAPES_OF}-sagesim"

_SURFACES: Final[tuple[Surface, ...]] = (ChatSurface(), CompletionsSurface(), ResponsesSurface(), MessagesSurface())

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class SimServer:
    """One engine and its HTTP face."""

    def __init__(self, options: Options) -> None:
        self.options = options
        limits = options.limits()
        self.observations = Observations(limits.max_model_len)
        self.paced = PacedEngine(
            Engine(profile_named(options.profile), limits), speedup=options.speedup, observations=self.observations
        )
        scripted = {} if options.lengths is None else read_lengths(options.lengths)
        lengths = TrueLengths(scripted, TopicLengths(options.seed, median_tokens=options.median_tokens))
        self._answering = Answering(options, self.paced, lengths, FINGERPRINT)
        created_s = time.time()
        collector = EngineCollector(self.paced, self.observations, model=options.model, created_s=created_s)
        self._pages = Pages(
            registry_for(collector),
            model=options.model,
            max_model_len=limits.max_model_len,
            created_s=created_s,
            version=f"{SHAPES_OF}+sagesched.sim",
            healthy=self.healthy,
        )
        self._runner: web.AppRunner | None = None
        self._stepping: asyncio.Task[None] | None = None

    async def start(self) -> str:
        """Binds the port and starts stepping; returns the base URL."""
        self._runner = web.AppRunner(
            self._application(), handler_cancellation=True, access_log=None, shutdown_timeout=self.options.drain_s
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, self.options.host, self.options.port, backlog=4096)
        await site.start()
        self._stepping = asyncio.create_task(self.paced.run(), name="engine steps")
        host, port = self._runner.addresses[0][:2]
        return f"http://{host}:{port}"

    async def failure(self) -> None:
        """Returns or raises only when the stepping has ended by itself, which it never should."""
        if self._stepping is not None:
            await asyncio.shield(self._stepping)

    def healthy(self) -> bool:
        """Whether the engine steps."""
        return self._stepping is not None and not self._stepping.done()

    async def stop(self) -> None:
        """Refuses new requests, lets those under way end (at most `drain_s`), then closes."""
        self._answering.closing = True
        if self._runner is not None:
            await self._runner.cleanup()
        if self._stepping is not None:
            self._stepping.cancel()

    def _application(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[_detailed, self._authorised])
        app.on_response_prepare.append(_add_vary)
        for surface in _SURFACES:
            app.router.add_post(surface.path, self._handler(surface))
        self._pages.add_to(app)
        return app

    def _handler(self, surface: Surface) -> Handler:
        async def handle(request: web.Request) -> web.StreamResponse:
            return await self._answering.answer(surface, request)

        return handle

    @web.middleware
    async def _authorised(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """As vLLM's: only what lies under /v1 asks for the key."""
        key = self.options.api_key
        if key is not None and request.path.startswith("/v1"):
            scheme, _, given = request.headers.get("Authorization", "").partition(" ")
            if scheme.lower() != "bearer" or not hmac.compare_digest(given.encode(), key.encode()):
                return web.json_response({"error": "Unauthorized"}, status=401)
        return await handler(request)


@web.middleware
async def _detailed(request: web.Request, handler: Handler) -> web.StreamResponse:
    """A path or a method that does not exist, as FastAPI says it."""
    try:
        return await handler(request)
    except (web.HTTPNotFound, web.HTTPMethodNotAllowed) as error:
        return web.json_response({"detail": error.reason}, status=error.status)


async def _add_vary(_: web.Request, response: web.StreamResponse) -> None:
    """The mark that vLLM's CORS layer leaves on every answer."""
    response.headers["Vary"] = "Origin"


async def serve(options: Options) -> None:
    """Prints a JSON line when ready; serves until SIGTERM or SIGINT, then drains. Raises what killed the engine."""
    server = SimServer(options)
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    url = await server.start()
    ready = {"event": "ready", "url": url, "model": options.model, "profile": options.profile}
    print(json.dumps(ready), file=sys.stdout, flush=True)
    asked, failed = asyncio.create_task(stopped.wait()), asyncio.create_task(server.failure())
    await asyncio.wait({asked, failed}, return_when=asyncio.FIRST_COMPLETED)
    if failed.done():
        # An engine that is dead answers nobody any more: there is nothing to drain.
        asked.cancel()
        await failed
    failed.cancel()
    await server.stop()
