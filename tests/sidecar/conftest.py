"""A sidecar in this process in front of scripted engines, and a client of raw sockets."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import raw_upstream as raw

from sagesched.settings import decode
from sagesched_sidecar.options import Options
from sagesched_sidecar.server import Sidecar, running


class LetterEmbedder:
    """Counts letters: quick, deterministic, and alike for alike texts."""

    name = "letters"
    dimensions = 26
    blocking = False

    def embed(self, text: str) -> Any:
        counts = np.array([1e-3 + text.lower().count(chr(97 + i)) for i in range(26)], dtype=np.float32)
        return counts / np.linalg.norm(counts)


class Reply:
    """What a client of raw sockets read."""

    def __init__(self, head: bytes, body: bytes, cut: bool) -> None:
        line, *fields = head.split(b"\r\n")
        self.status = int(line.split(b" ")[1])
        self.reason = line.split(b" ", 2)[2].decode()
        self.fields = [
            (k.decode("latin-1"), v.strip().decode("latin-1")) for k, _, v in (f.partition(b":") for f in fields)
        ]
        self.body = body
        self.cut = cut
        """Whether the connection ended before the body did."""

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.fields if key.lower() == name.lower()), None)


async def read_reply(reader: asyncio.StreamReader, *, head_only: bool = False) -> Reply:
    """One answer; interim answers are skipped."""
    head = (await reader.readuntil(b"\r\n\r\n"))[:-4]
    reply = Reply(head, b"", False)
    if 100 <= reply.status < 200:
        return await read_reply(reader, head_only=head_only)
    if head_only or reply.status in (204, 304):
        return reply
    body = bytearray()
    try:
        await _read_body(reader, reply, body)
    except (asyncio.IncompleteReadError, ConnectionError) as error:
        body += getattr(error, "partial", b"")
        reply.cut = True
    reply.body = bytes(body)
    return reply


async def _read_body(reader: asyncio.StreamReader, reply: Reply, body: bytearray) -> None:
    if "chunked" in (reply.header("transfer-encoding") or ""):
        while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            body += await reader.readexactly(size)
            await reader.readexactly(2)
        await reader.readexactly(2)
    elif (length := reply.header("content-length")) is not None:
        body += await reader.readexactly(int(length))
    else:
        body += await reader.read()


def request_bytes(method: str, target: str, body: bytes = b"", *fields: str) -> bytes:
    """A request with Content-Length where it has a body."""
    length = [f"Content-Length: {len(body)}"] if body else []
    lines = [f"{method} {target} HTTP/1.1", "Host: sidecar", *length, *fields]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


async def ask(sidecar: Sidecar, method: str, target: str, body: bytes = b"", *fields: str) -> Reply:
    """One exchange over a connection of its own."""
    reader, writer = await asyncio.open_connection(*sidecar.address, limit=1 << 26)
    try:
        writer.write(request_bytes(method, target, body, *fields))
        return await read_reply(reader, head_only=method == "HEAD")
    finally:
        writer.close()


@pytest.fixture
def fakes() -> ModuleType:
    """tests/fakes/raw_upstream.py"""
    return raw


@pytest.fixture
def client() -> ModuleType:
    """The functions of this file."""
    return sys.modules[__name__]


@pytest.fixture
async def start() -> AsyncIterator[Callable[..., Any]]:
    """`await start(answer, settings={}, embedder=..., api_key=...)` gives a fake engine and the sidecar before it."""
    async with AsyncExitStack() as stack:

        async def begin(answer: Any, settings: Any = None, embedder: Any = None, **options: Any) -> tuple[Any, Sidecar]:
            engine = await stack.enter_async_context(raw.RawUpstream(answer))
            chosen = Options(
                upstream=options.get("upstream", engine.url),
                host="127.0.0.1",
                port=0,
                log_level="debug",
                settings=decode(settings or {}),
                api_key=options.get("api_key"),
                **{name: value for name, value in options.items() if name not in ("upstream", "api_key")},
            )
            sidecar = await stack.enter_async_context(running(chosen, embedder or LetterEmbedder()))
            return engine, sidecar

        yield begin
