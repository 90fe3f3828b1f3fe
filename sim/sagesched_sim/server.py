"""The HTTP server: paths, keys, start and drain."""

import asyncio
import hmac
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable

import msgspec
from aiohttp import web

from sagesched_sim.answering import Answering
from sagesched_sim.engine import Engine
from sagesched_sim.lengths import TopicLengths, TrueLengths, read_lengths
from sagesched_sim.metrics import EngineCollector, exposition, registry_for
from sagesched_sim.observations import Observations
from sagesched_sim.options import Options
from sagesched_sim.pacing import PacedEngine
from sagesched_sim.profile import profile_named
from sagesched_sim.prompt import chat_template, content_text, token_ids
from sagesched_sim.surfaces.ask import Surface
from sagesched_sim.surfaces.chat import ChatSurface
from sagesched_sim.surfaces.completions import CompletionsSurface

MAX_BODY_BYTES = 64 * 2**20
SHAPES_OF = "0.32.0"
"""The vLLM release whose shapes are written."""
FINGERPRINT = f"vllm-{SHAPES_OF}-sagesim"

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
        self._created_s = time.time()
        self._registry = registry_for(
            EngineCollector(self.paced, self.observations, model=options.model, created_s=self._created_s)
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

    async def stop(self) -> None:
        """Refuses new requests, lets those under way end (at most `drain_s`), then closes."""
        self._answering.closing = True
        if self._runner is not None:
            await self._runner.cleanup()
        if self._stepping is not None:
            self._stepping.cancel()

    def _application(self) -> web.Application:
        app = web.Application(client_max_size=MAX_BODY_BYTES, middlewares=[self._authorised])
        for surface in (ChatSurface(), CompletionsSurface()):
            app.router.add_post(surface.path, self._handler(surface))
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        app.router.add_route("*", "/ping", self._health)
        app.router.add_get("/version", self._version)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_get("/metrics", self._metrics)
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

    async def _models(self, request: web.Request) -> web.Response:
        created = int(self._created_s)
        permission = {
            "id": "modelperm-sagesched-sim",
            "object": "model_permission",
            "created": created,
            "allow_create_engine": False,
            "allow_sampling": True,
            "allow_logprobs": True,
            "allow_search_indices": False,
            "allow_view": True,
            "allow_fine_tuning": False,
            "organization": "*",
            "group": None,
            "is_blocking": False,
        }
        card = {
            "id": self.options.model,
            "object": "model",
            "created": created,
            "owned_by": "vllm",
            "root": self.options.model,
            "parent": None,
            "max_model_len": self.paced.engine.limits.max_model_len,
            "permission": [permission],
        }
        return web.json_response({"object": "list", "data": [card]})

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": f"{SHAPES_OF}+sagesched.sim"})

    async def _metrics(self, request: web.Request) -> web.Response:
        return web.Response(
            body=exposition(self._registry), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = msgspec.json.decode(await request.read())
        if isinstance(body, dict) and isinstance(body.get("messages"), list):
            turns = [(str(m.get("role")), content_text(m.get("content"))) for m in body["messages"]]
            text = chat_template(turns)
        else:
            text = str(body.get("prompt", ""))
        tokens = token_ids(text)
        limit = self.paced.engine.limits.max_model_len
        return web.json_response({"count": len(tokens), "max_model_len": limit, "tokens": tokens, "token_strs": None})


async def serve(options: Options) -> None:
    """Serves until SIGTERM or SIGINT, then drains. Prints one JSON line when it is ready."""
    server = SimServer(options)
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    url = await server.start()
    ready = {"event": "ready", "url": url, "model": options.model, "profile": options.profile}
    print(json.dumps(ready), file=sys.stdout, flush=True)
    await stopped.wait()
    await server.stop()
