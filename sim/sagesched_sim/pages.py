"""The small pages beside the four surfaces: models, health, version, tokenize, count_tokens, metrics."""

from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry

from sagesched_sim.metrics import exposition
from sagesched_sim.prompt import chat_template, content_text, token_ids
from sagesched_sim.surfaces.ask import openai_error
from sagesched_sim.surfaces.messages import MessagesSurface


class Pages:
    """Their handlers."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        model: str,
        max_model_len: int,
        created_s: float,
        version: str,
        healthy: Callable[[], bool],
    ) -> None:
        self._registry = registry
        self._model = model
        self._max_model_len = max_model_len
        self._created_s = int(created_s)
        self._version = version
        self._healthy = healthy
        self._messages = MessagesSurface()

    def add_to(self, app: web.Application) -> None:
        """Adds the routes."""
        app.router.add_get("/v1/models", self.models)
        app.router.add_get("/health", self.health)
        app.router.add_route("*", "/ping", self.health)
        app.router.add_get("/version", self.version)
        app.router.add_post("/tokenize", self.tokenize)
        app.router.add_post("/v1/messages/count_tokens", self.count_tokens)
        app.router.add_get("/metrics", self.metrics)

    async def models(self, request: web.Request) -> web.Response:
        """The one model."""
        permission = {
            "id": "modelperm-sagesched-sim",
            "object": "model_permission",
            "created": self._created_s,
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
            "id": self._model,
            "object": "model",
            "created": self._created_s,
            "owned_by": "vllm",
            "root": self._model,
            "parent": None,
            "max_model_len": self._max_model_len,
            "permission": [permission],
        }
        return web.json_response({"object": "list", "data": [card]})

    async def health(self, request: web.Request) -> web.Response:
        """200 and empty; 503 where the engine has died."""
        return web.Response(status=200 if self._healthy() else 503)

    async def version(self, request: web.Request) -> web.Response:
        """The vLLM release whose shapes are written, marked as ours."""
        return web.json_response({"version": self._version})

    async def metrics(self, request: web.Request) -> web.Response:
        """Prometheus text."""
        return web.Response(
            body=exposition(self._registry), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}
        )

    async def tokenize(self, request: web.Request) -> web.Response:
        """Tokens of a `prompt`, or of `messages` behind the chat template; as many as usage will count."""
        try:
            tokens = token_ids(_tokenized_text(msgspec.json.decode(await request.read())))
        except (msgspec.DecodeError, TypeError) as error:
            return _bad_request(error)
        return web.json_response(
            {"count": len(tokens), "max_model_len": self._max_model_len, "tokens": tokens, "token_strs": None}
        )

    async def count_tokens(self, request: web.Request) -> web.Response:
        """Input tokens of a message."""
        try:
            tokens = self._messages.count(await request.read())
        except msgspec.DecodeError as error:
            return _bad_request(error)
        return web.json_response({"input_tokens": tokens, "context_management": {"original_input_tokens": tokens}})


def _tokenized_text(body: Any) -> str:
    if isinstance(body, dict) and isinstance(body.get("prompt"), str):
        return str(body["prompt"])
    if isinstance(body, dict) and isinstance(body.get("messages"), list):
        messages = [message for message in body["messages"] if isinstance(message, dict)]
        return chat_template([(str(message.get("role")), content_text(message.get("content"))) for message in messages])
    raise TypeError("give a text `prompt` or a list of `messages`")


def _bad_request(error: Exception) -> web.Response:
    body = openai_error(f"1 validation error:\n  {error}", "Bad Request", 400, None)
    return web.Response(body=body, status=400, content_type="application/json")
