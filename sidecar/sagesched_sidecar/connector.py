"""How connections to the engine are made: one for each exchange, and for an address straight from the event loop."""

import asyncio
import ipaddress
from collections.abc import Callable
from functools import cache, partial
from typing import cast

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.tracing import Trace


class EngineConnection(ResponseHandler):
    """A connection whose reset is a cut, also of an answer that ends with the connection and so has no other mark."""

    pump: Callable[[], None] | None = None
    """Called whenever something was read, and at the end (pump.py)."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there. The base class would set TCP_NODELAY, as asyncio's loop and uvloop's have done already."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        super().data_received(data)
        if self.pump is not None:
            self.pump()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Go on reading. A stream asks for it after every read; where nothing was paused it would parse nothing once
        more, at a sixth of an event's cost."""
        if self._reading_paused or self._buffer_paused:
            super().resume_reading(resume_parser)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The connection is gone."""
        payload = self._payload
        if exc is not None and payload is not None and not payload.is_eof():
            payload.set_exception(aiohttp.ClientPayloadError("the engine reset the connection"))
        super().connection_lost(exc)
        if self.pump is not None:
            self.pump()


class DirectConnector(aiohttp.TCPConnector):
    """A TCP connector that keeps no connection, and that skips resolving and racing addresses where the engine is an IP
    address without TLS: half the time of a connection on the loopback interface."""

    def __init__(self) -> None:
        super().__init__(limit=0, force_close=True)
        self._factory = cast("partial[ResponseHandler]", partial(EngineConnection, loop=asyncio.get_running_loop()))

    async def _create_connection(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109 - the base class's signature
    ) -> ResponseHandler:
        host, port = req.url.raw_host or "", req.url.port
        if req.is_ssl() or req.proxy or port is None or not _is_address(host):
            return await super()._create_connection(req, traces, timeout)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout.sock_connect):
                _, protocol = await loop.create_connection(self._factory, host, port)
        except TimeoutError as error:
            raise aiohttp.ConnectionTimeoutError(f"no connection to {host}:{port}") from error
        except OSError as error:
            raise aiohttp.ClientConnectorError(req.connection_key, error) from error
        return protocol


@cache
def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
