"""A fast engine without an engine: answers at once, or streams events at a steady pace. `python -m bench.upstream`

A request's headers say what it wants: `X-Events` how many events, `X-Pace-Ms` the time between them.
"""

import asyncio
import json
import sys
from functools import partial
from typing import cast

import uvloop

_METRICS = b"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running 0.0\nvllm:num_requests_waiting 0.0\n"
_ANSWER = json.dumps(
    {
        "id": "chatcmpl-bench",
        "object": "chat.completion",
        "created": 1,
        "model": "bench",
        "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "A word. " * 20}, "finish_reason": "stop"}
        ],
        "usage": {"prompt_tokens": 20, "completion_tokens": 60, "total_tokens": 80},
    }
).encode()
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def full(body: bytes, kind: bytes) -> bytes:
    """A whole answer."""
    return b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s" % (kind, len(body), body)


def chunk(event: bytes) -> bytes:
    """One event as one chunk."""
    return b"%x\r\n%s\r\n" % (len(event), event)


def token_event(number: int) -> bytes:
    """One token as vLLM streams it."""
    delta = {"index": 0, "delta": {"content": f" word{number}"}, "logprobs": None, "finish_reason": None}
    frame = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
    return b"data: " + json.dumps(frame | {"choices": [delta]}, separators=(",", ":")).encode() + b"\n\n"


_EVENTS = [chunk(token_event(number)) for number in range(1000)]
_LAST = chunk(
    b'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1,"model":"bench","choices":[{"index":0,'
    b'"delta":{"content":""},"logprobs":null,"finish_reason":"stop"}]}\n\n'
)
_USAGE = chunk(
    b'data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1,"model":"bench","choices":[],'
    b'"usage":{"prompt_tokens":20,"total_tokens":170,"completion_tokens":150}}\n\n'
)
_DONE = chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n"


class Exchanges(asyncio.Protocol):
    """Answers the requests of one connection in turn."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._transport: asyncio.Transport | None = None
        self._due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._transport = None
        if self._due is not None:
            self._due.cancel()

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        line, *rest = bytes(self._buffer[:end]).split(b"\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (field.partition(b":") for field in rest)}
        length = int(fields.get(b"content-length", b"0"))
        if len(self._buffer) < end + 4 + length:
            return
        body = bytes(self._buffer[end + 4 : end + 4 + length])
        del self._buffer[: end + 4 + length]
        self._answer(line, fields, body)

    def _answer(self, line: bytes, fields: dict[bytes, bytes], body: bytes) -> None:
        assert self._transport is not None
        if line.startswith(b"GET /metrics"):
            self._transport.write(full(_METRICS, b"text/plain"))
        elif b'"stream": true' in body:
            self._transport.write(_STREAM_HEAD)
            pace_s = float(fields.get(b"x-pace-ms", b"0")) / 1000
            self._event(0, int(fields.get(b"x-events", b"1")), pace_s, b"include_usage" in body)
        else:
            self._transport.write(full(_ANSWER, b"application/json"))

    def _event(self, number: int, count: int, pace_s: float, usage: bool) -> None:
        """Write one event by itself, and set the clock for the next."""
        transport = self._transport
        if transport is None:
            return
        if number >= count - 1:
            transport.write(_LAST)
            transport.write((_USAGE if usage else b"") + _DONE)
            return
        transport.write(_EVENTS[number % len(_EVENTS)])
        loop = asyncio.get_running_loop()
        self._due = loop.call_later(pace_s, partial(self._event, number + 1, count, pace_s, usage))


async def serve() -> None:
    """Serve until ended."""
    server = await asyncio.get_running_loop().create_server(Exchanges, "127.0.0.1", 0, backlog=1024)
    host, port = server.sockets[0].getsockname()
    print(json.dumps({"url": f"http://{host}:{port}"}), flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    sys.exit(uvloop.run(serve()))
