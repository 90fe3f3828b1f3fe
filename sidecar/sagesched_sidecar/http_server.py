"""The HTTP server, with our own answer to what is no HTTP: aiohttp's log line would quote the client's bytes, and
where a body is longer than it says, those are its prompt."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from sagesched_sidecar.errors import BAD_HTTP, Refusal, error_response

_log = logging.getLogger(__name__)
_REFUSAL = Refusal(400, BAD_HTTP, "the request is not valid HTTP")


class HttpServer(web.Server):
    """aiohttp's server; `rejected` is told the reason of each refusal."""

    def __init__(
        self,
        handler: Callable[[web.BaseRequest], Awaitable[web.StreamResponse]],
        *,
        rejected: Callable[[str], None],
        **options: Any,
    ) -> None:
        super().__init__(handler, **options)
        self.rejected = rejected

    def __call__(self) -> web.RequestHandler:
        """A connection."""
        return _Connection(self, self.rejected, loop=self._loop, **self._kwargs)


class _Connection(web.RequestHandler):
    """One client's connection."""

    def __init__(self, server: HttpServer, rejected: Callable[[str], None], **options: Any) -> None:
        super().__init__(server, **options)
        self._rejected = rejected

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what cannot be parsed; trouble of our own (500 and above) stays aiohttp's."""
        if status >= 500:
            return super().handle_error(request, status, exc, message)
        _log.debug("request is not valid HTTP", extra={"peer": request.remote, "problem": type(exc).__name__})
        if request.writer.output_size > 0:
            raise ConnectionError("an answer has begun; there is no room for another")
        self._rejected(BAD_HTTP)
        answer = error_response(_REFUSAL)
        answer.force_close()
        return answer
