"""A connection to the engine."""

import asyncio
import socket
from functools import partial

import pytest
import uvloop

from sagesched_sidecar.connector import EngineConnection


@pytest.mark.parametrize("loop_factory", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_small_writes_are_not_held_back(loop_factory):
    """The loop sees to that, and the connection does not ask for it once more."""

    async def asked():
        loop = asyncio.get_running_loop()
        server = await loop.create_server(asyncio.Protocol, "127.0.0.1", 0)
        async with server:
            factory = partial(EngineConnection, loop=loop)
            transport, _ = await loop.create_connection(factory, *server.sockets[0].getsockname())
            try:
                held = transport.get_extra_info("socket")
                return held.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            finally:
                transport.close()

    with asyncio.Runner(loop_factory=loop_factory) as runner:
        assert runner.run(asked())
