"""Answers a request of one of the four surfaces: reads it, runs it in the engine, writes what comes out."""

import asyncio
import contextlib
import time
import uuid
import zlib

import msgspec
from aiohttp import web

from sagesched_sim.admission import wanted_sequences
from sagesched_sim.faults import Fault, Faults
from sagesched_sim.filler import FillerText
from sagesched_sim.lengths import TrueLengths
from sagesched_sim.options import Options
from sagesched_sim.pacing import PacedEngine
from sagesched_sim.session import Session
from sagesched_sim.surfaces.ask import Ask, BadRequest, Stamp, Surface, Text, Writer, openai_error

_EVENT_STREAM = "text/event-stream; charset=utf-8"


class Answering:
    """The one handler behind the four paths."""

    def __init__(self, options: Options, paced: PacedEngine, lengths: TrueLengths, fingerprint: str) -> None:
        self._options = options
        self._paced = paced
        self._lengths = lengths
        self._fingerprint = fingerprint
        self._filler = FillerText(options.seed)
        self._faults = Faults(options.fault_rate, options.fault_kinds, options.seed)
        self.closing = False
        """Set while draining: new requests are refused."""

    async def answer(self, surface: Surface, request: web.Request) -> web.StreamResponse:
        """Serves one request. A client that leaves cancels this, and with it what it has in the engine."""
        if self.closing:
            return _refusal(surface, "The server is shutting down.", "ServiceUnavailableError", 503, None)
        fault = self._faults.draw()
        try:
            ask = surface.read(await self._body(request))
            self._check_model(ask.model)
            wanted = wanted_sequences(ask, self._lengths, self._paced.engine.limits.max_model_len)
        except BadRequest as error:
            return _refusal(surface, str(error), error.kind, error.status, error.param)
        except msgspec.DecodeError as error:
            return _invalid(error)
        if fault is not None and fault.kind == "error500":
            return _refusal(surface, "EngineCore encountered an issue.", "InternalServerError", 500, None)
        stamp = self._stamp(request, ask, wanted[0].max_tokens)
        writer = surface.writer(ask, stamp, self._text(ask))
        session = self._paced.open(
            wanted,
            interval_tokens=self._options.stream_interval if ask.stream else None,
            priority=_priority(request, ask),
        )
        try:
            if ask.stream:
                return await self._stream(request, session, writer, fault)
            return await self._whole(request, session, writer, fault)
        finally:
            self._paced.close(session)

    async def _body(self, request: web.Request) -> bytes:
        if request.content_type != "application/json":
            raise BadRequest("Unsupported Media Type: Only 'application/json' is allowed", kind="Bad Request")
        return await request.read()

    def _check_model(self, model: str | None) -> None:
        if model and model != self._options.model:
            raise BadRequest(f"The model `{model}` does not exist.", status=404, kind="NotFoundError", param="model")

    def _stamp(self, request: web.Request, ask: Ask, max_tokens: int) -> Stamp:
        return Stamp(
            id=request.headers.get("X-Request-Id") or uuid.uuid4().hex,
            created_s=int(time.time()),
            model=self._options.model,
            fingerprint=self._fingerprint,
            max_tokens=max_tokens,
        )

    def _text(self, ask: Ask) -> Text:
        """The words of this request's answers: each sequence enters the filler where its prompt and number put it."""
        entries = [
            zlib.crc32(f"{self._options.seed}\0{choice}\0{prompt.text}".encode("utf-8", "surrogatepass"))
            for prompt in ask.prompts
            for choice in range(ask.choices)
        ]
        filler = self._filler

        def tokens(sequence: int, begin: int, end: int) -> bytes:
            return filler.tokens(entries[sequence], begin, end)

        return tokens

    async def _whole(
        self, request: web.Request, session: Session, writer: Writer, fault: Fault | None
    ) -> web.StreamResponse:
        endings = []
        while pieces := await session.pieces():
            endings += pieces
        if fault is not None:
            with contextlib.suppress(ConnectionResetError):
                await self._suffer(request, fault)
        endings.sort(key=lambda piece: piece.sequence)
        return web.Response(body=writer.whole(endings), content_type="application/json")

    async def _stream(
        self, request: web.Request, session: Session, writer: Writer, fault: Fault | None
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": _EVENT_STREAM})
        # A client that leaves is seen here where a write meets the closing connection before the cancellation comes.
        with contextlib.suppress(ConnectionResetError):
            await response.prepare(request)
            await self._events(request, response, session, writer, fault)
        return response

    async def _events(
        self,
        request: web.Request,
        response: web.StreamResponse,
        session: Session,
        writer: Writer,
        fault: Fault | None,
    ) -> None:
        if opening := writer.opening():
            await response.write(opening)
        events = 0
        while pieces := await session.pieces():
            if fault is not None and events + len(pieces) > fault.after_events:
                await self._suffer(request, fault)
                fault = None
            await response.write(b"".join(map(writer.piece, pieces)))
            events += len(pieces)
        await response.write(writer.closing())
        await response.write_eof()

    async def _suffer(self, request: web.Request, fault: Fault) -> None:
        """Stalls, or breaks the connection off: then raises ConnectionResetError."""
        if fault.kind == "stall":
            await asyncio.sleep(self._options.stall_s)
            return
        if request.transport is not None:
            request.transport.abort()
        raise ConnectionResetError("broken off on purpose")


def _refusal(surface: Surface, message: str, kind: str, status: int, param: str | None) -> web.Response:
    return web.Response(
        body=surface.error(message, kind, status, param), status=status, content_type="application/json"
    )


def _invalid(error: msgspec.DecodeError) -> web.Response:
    """A body that does not decode: every surface, also Anthropic's, answers in OpenAI's shape."""
    said = openai_error(f"1 validation error:\n  {error}", "Bad Request", 400, _param(str(error)))
    return web.Response(body=said, status=400, content_type="application/json")


def _param(message: str) -> str | None:
    """The field that msgspec names at the end of its message (`... - at `$.max_tokens``)."""
    _, found, path = message.rpartition("`$.")
    return path.rstrip("`").partition("[")[0] if found else None


def _priority(request: web.Request, ask: Ask) -> int:
    """The header's priority, or where it has none that is a number the body's: vLLM gives the header precedence."""
    try:
        return int(request.headers["X-Vllm-Priority"])
    except (KeyError, ValueError):
        return ask.priority
