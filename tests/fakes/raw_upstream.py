"""An engine of raw sockets: it writes scripted bytes, cut where the script says, and records what came and went."""

import asyncio
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

End = Literal["keep", "close", "reset", "hang"]


@dataclass
class Script:
    """What is written in answer to one request, piece by piece, and how the connection ends after it.

    `hang`: it stays open and says nothing more until the other side closes it.
    """

    pieces: list[bytes]
    end: End = "close"
    pause_s: float = 0.0
    gate: asyncio.Event | None = None
    """Awaited before the first piece."""
    between: asyncio.Event | None = None
    """Awaited after the first piece."""


@dataclass
class Seen:
    """One request as it came, and what happened to its connection."""

    line: bytes
    headers: list[tuple[str, str]]
    body: bytes
    written: bytearray = field(default_factory=bytearray)
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the other side has closed the connection."""

    def note_end(self, read: "asyncio.Future[bytes]") -> None:
        """The read that watches for the other side's close has ended, by an error too."""
        if not read.cancelled():
            read.exception()
            self.closed.set()

    @property
    def target(self) -> str:
        return self.line.split(b" ")[1].decode()

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name.lower()), None)


class RawUpstream:
    """Listens on a free port of the loopback interface."""

    def __init__(self, answer: Callable[[Seen], Script]) -> None:
        self.answer = answer
        self.seen: list[Seen] = []
        self.metrics: list[bytes] | None = None
        """The page at /metrics, in the pieces in which it is written; 404 without one."""
        self.arrived = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> "RawUpstream":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, backlog=1024)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """No port, no connections."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def request(self, number: int) -> Seen:
        """The request of that number among those that are no probes of health and metrics, once it has come."""
        while len(self.seen) <= number:
            self.arrived.clear()
            await self.arrived.wait()
        return self.seen[number]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        seen = await read_request(reader)
        if seen is None:
            return False
        if seen.target in ("/health", "/metrics"):
            await self._write_probe(seen.target, writer)
            return True
        script = self.answer(seen)
        self.seen.append(seen)
        self.arrived.set()
        watcher = asyncio.ensure_future(reader.read(1)) if script.end in ("hang", "reset", "close") else None
        if watcher is not None:
            watcher.add_done_callback(seen.note_end)
        try:
            return await self._write(seen, script, writer)
        finally:
            if watcher is not None and not watcher.done():
                watcher.cancel()

    async def _write_probe(self, target: str, writer: asyncio.StreamWriter) -> None:
        page = self.metrics if target == "/metrics" else None
        status = b"404 Not Found" if page is None else b"200 OK"
        writer.write(b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status, sum(map(len, page or []))))
        for piece in page or []:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.001)

    async def _write(self, seen: Seen, script: Script, writer: asyncio.StreamWriter) -> bool:
        if script.gate is not None:
            await until(script.gate, seen.closed)
        for number, piece in enumerate(script.pieces):
            if number == 1 and script.between is not None:
                await until(script.between, seen.closed)
            writer.write(piece)
            seen.written += piece
            await writer.drain()
            await asyncio.sleep(script.pause_s)
        if script.end == "hang":
            await seen.closed.wait()
        if script.end == "reset":
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()
        return script.end == "keep"


async def until(*events: asyncio.Event) -> None:
    """Until one of the events is set."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


async def read_request(reader: asyncio.StreamReader) -> Seen | None:
    """One HTTP/1.1 request, body included; None at the end of the connection."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    line, *rest = head[:-4].split(b"\r\n")
    headers = [(k.decode("latin-1"), v.strip().decode("latin-1")) for k, _, v in (h.partition(b":") for h in rest)]
    named = {key.lower(): value for key, value in headers}
    if "chunked" in named.get("transfer-encoding", ""):
        body = await read_chunked(reader)
    else:
        body = await reader.readexactly(int(named.get("content-length", "0")))
    return Seen(line, headers, body)


async def read_chunked(reader: asyncio.StreamReader) -> bytes:
    """A chunked body without its framing. Raises IncompleteReadError when it is cut."""
    body = bytearray()
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        body += await reader.readexactly(size)
        await reader.readexactly(2)
    while (await reader.readuntil(b"\r\n")) != b"\r\n":
        pass
    return bytes(body)
