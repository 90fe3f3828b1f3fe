"""Bytes of one exchange: the client's body in, the engine's answer out, each as it comes."""

import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import cast

import aiohttp
from aiohttp import web
from aiohttp.http_writer import StreamWriter
from multidict import CIMultiDict

from sagesched_sidecar.errors import BAD_BODY, BODY_TOO_LARGE, Refusal
from sagesched_sidecar.pump import Pump
from sagesched_sidecar.streams import Passage

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""struct linger: on, zero seconds."""


class CutError(Exception):
    """The engine's connection ended before its answer did."""


class BodyError(Exception):
    """The client's body cannot be taken; carries what the client is told."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class Answer(web.StreamResponse):
    """A response whose headers are the engine's: nothing of the server's own but Date (RFC 9110 6.6.1)."""

    async def _prepare_headers(self) -> None:
        added = [name for name in ("Server", "Content-Type") if name not in self.headers]
        await super()._prepare_headers()
        for name in added:
            self.headers.popall(name, None)


async def read_body(request: web.BaseRequest, limit_bytes: int) -> bytes:
    """The whole body as it was sent, in whatever encoding. Raises BodyError, before reading where it can."""
    too_large = BodyError(Refusal(413, BODY_TOO_LARGE, f"the body is larger than {limit_bytes} bytes"))
    if (request.content_length or 0) > limit_bytes:
        raise too_large
    await welcome(request)
    body = bytearray()
    try:
        while chunk := await request.content.readany():
            body += chunk
            if len(body) > limit_bytes:
                raise too_large
    except web.RequestPayloadError as error:
        raise BodyError(Refusal(400, BAD_BODY, "the body's transfer encoding is broken")) from error
    return bytes(body)


async def body_as_it_comes(request: web.BaseRequest) -> AsyncIterator[bytes]:
    """The body in the pieces in which it arrives."""
    await welcome(request)
    while chunk := await request.content.readany():
        yield chunk


async def welcome(request: web.BaseRequest) -> None:
    """Say 100 Continue to a client that waits for it."""
    if request.headers.get("Expect", "").lower() == "100-continue" and request.version >= aiohttp.HttpVersion11:
        writer = request.writer
        await writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        writer.output_size = 0


async def answer_client(
    request: web.BaseRequest,
    source: aiohttp.ClientResponse,
    passage: Passage,
    headers: CIMultiDict[str],
    *,
    begun: Callable[[], object],
    ended: Callable[[], Awaitable[None]],
) -> web.StreamResponse:
    """Pass the engine's answer on. `begun` is called once its first bytes are on their way to the client and more is to
    come, `ended` once the engine has written all of it, however slow the client.

    Raises CutError when the engine ends early, the client's connection then being closed without a clean end;
    ConnectionError when the client has left.
    """
    answer = Answer(status=source.status, reason=source.reason, headers=headers)
    try:
        await answer.prepare(request)
        await _relay(
            source, answer, passage, begun, Pump(source, passage, cast(StreamWriter, request.writer), request.protocol)
        )
    except CutError:
        _end_unclean(request)
        raise
    await ended()
    await answer.write_eof()
    return answer


async def _relay(
    source: aiohttp.ClientResponse,
    answer: web.StreamResponse,
    passage: Passage,
    begun: Callable[[], object],
    pump: Pump,
) -> None:
    """Every read goes to the client at once; the pace is the client's."""
    content = source.content
    cause: Exception | None = None
    silent = True
    while True:
        try:
            chunk = await content.readany()
        except (aiohttp.ClientError, ConnectionError) as error:
            # What came with the end is the engine's too; readany raises before it would give it.
            chunk, cause = content._read_nowait(-1), error
        if chunk and (out := passage.feed(chunk)):
            await answer.write(out)
            if silent and not content.is_eof():
                begun()
            silent = False
        if not chunk or cause:
            break
        if not silent:
            await pump.run()
    if rest := passage.close():
        await answer.write(rest)
    if cause:
        raise CutError from cause


def _end_unclean(request: web.BaseRequest) -> None:
    """A body of stated length or of chunks reads as cut when the connection closes; one that ends with the connection
    (HTTP/1.0) needs a reset."""
    transport = request.transport
    if transport is None:
        return
    if request.version >= aiohttp.HttpVersion11:
        transport.close()
        return
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    transport.abort()
