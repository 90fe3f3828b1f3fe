"""The quick way of an answer's bytes: from the engine's connection to the client's within one call of the event loop.

Waking a task for each read costs as much as all that is done with it. So while there is nothing to wait for, whatever
the engine's connection has read is written to the client there and then; for the rest, the end, a cut, a client that
reads slowly, there is the task (exchange.py).
"""

import asyncio
from typing import Protocol

import aiohttp
from aiohttp.http_writer import StreamWriter

from sagesched_sidecar.connector import EngineConnection
from sagesched_sidecar.streams import Passage


class Flow(Protocol):
    """A connection to the client, as far as it tells whether it takes more."""

    @property
    def writing_paused(self) -> bool:
        """Whether its buffer is full."""


class Pump:
    """Moves one answer's bytes while it can."""

    def __init__(self, source: aiohttp.ClientResponse, passage: Passage, writer: StreamWriter, client: Flow):
        connection = source.connection
        protocol = connection.protocol if connection is not None else None
        self._connection = protocol if isinstance(protocol, EngineConnection) else None
        self._content = source.content
        self._passage = passage
        self._writer = writer
        self._client = client
        self._over: asyncio.Future[None] | None = None
        self._moving = False

    async def run(self) -> None:
        """Until there is something that only a task can wait for or tell; then what came is still to be read.

        Raises what the passage raises, and ConnectionError when the client has left.
        """
        if self._connection is None or not self._can_move():
            return
        self._over = asyncio.get_running_loop().create_future()
        self._connection.pump = self._move
        try:
            self._move()
            await self._over
        finally:
            self._connection.pump = None

    def _can_move(self) -> bool:
        content = self._content
        return not content.is_eof() and content.exception() is None and not self._client.writing_paused

    def _move(self) -> None:
        """The engine's connection has read something, or has ended.

        Taking bytes may make a connection that was held back read on, and so call this again before they are written.
        """
        over = self._over
        if self._moving or over is None or over.done():
            return
        self._moving = True
        try:
            while self._can_move():
                chunk = self._content.read_nowait()
                if not chunk:
                    return
                if out := self._passage.feed(chunk):
                    _write(self._writer, out)
            over.set_result(None)
        except Exception as error:
            over.set_exception(error)
        finally:
            self._moving = False


def _write(writer: StreamWriter, data: bytes) -> None:
    """Write without waiting: told not to drain, the coroutine runs through."""
    try:
        writer.write(data, drain=False).send(None)
    except StopIteration:
        return
    raise RuntimeError("a write that does not drain has waited")
