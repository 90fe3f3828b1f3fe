"""Answers of the sidecar's own: a typed reason in a header and a body in the shape of the surface."""

from typing import NamedTuple

import msgspec
from aiohttp import web

from sagesched_sidecar.headers import DROPPED_REASON, EXPLAIN_ID, REASON

ENGINE_UNREACHABLE = "engine-unreachable"
ENGINE_CUT = "engine-cut"
ENGINE_BAD_ANSWER = "engine-bad-answer"
DRAINING = "draining"
BODY_TOO_LARGE = "body-too-large"
BAD_BODY = "bad-body"
BAD_HTTP = "bad-http"
BAD_TARGET = "bad-target"

DROPPED = {
    "queue-full": "rejected-saturated",
    "queue-bytes-full": "rejected-saturated",
    "queue-age": "rejected-ttl-expired",
    DRAINING: "rejected-shutting-down",
}
"""llm-d's words for what the queue did not serve; it has none for an engine that is gone or a request that is wrong."""


class Refusal(NamedTuple):
    """Why the sidecar itself answers, in the vocabulary that header and metric share."""

    status: int
    reason: str
    message: str
    retry_after_s: float | None = None


class EngineGoneError(Exception):
    """The engine gave no answer to this exchange; carries what the client is told."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


_TYPES = {400: "invalid_request_error", 413: "invalid_request_error", 429: "rate_limit_error"}
_ANTHROPIC_TYPES = {
    400: "invalid_request_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}


def error_body(refusal: Refusal, *, anthropic: bool) -> bytes:
    """The body in OpenAI's or in Anthropic's shape."""
    if anthropic:
        kind = _ANTHROPIC_TYPES.get(refusal.status, "api_error")
        return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": refusal.message}})
    kind = _TYPES.get(refusal.status, "server_error")
    return msgspec.json.encode(
        {"error": {"message": refusal.message, "type": kind, "param": None, "code": refusal.reason}}
    )


def error_response(refusal: Refusal, *, anthropic: bool = False, explain_id: str | None = None) -> web.Response:
    """The whole answer."""
    headers = {REASON: refusal.reason}
    if refusal.reason in DROPPED:
        headers[DROPPED_REASON] = DROPPED[refusal.reason]
    if explain_id is not None:
        headers[EXPLAIN_ID] = explain_id
    if refusal.retry_after_s is not None:
        headers["Retry-After"] = str(max(1, round(refusal.retry_after_s)))
    return web.Response(
        status=refusal.status,
        body=error_body(refusal, anthropic=anthropic),
        headers=headers,
        content_type="application/json",
    )
