"""The server: its addresses, TLS, keepalive and limits."""

import logging
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from sagesched.addresses import Address, parse_address
from sagesched.settings import Grpc
from sagesched_sidecar.rpc import introspection, scheduling
from sagesched_sidecar.rpc.health import Health
from sagesched_sidecar.tls import Tls

OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.so_reuseport", 0),
    # A client that is gone without a word is found by the second ping, and its slot comes back.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.keepalive_permit_without_calls", 1),
    # Clients may ping as often as they like: grpc's own default cuts those that do so more than once in five minutes.
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 1_000),
    ("grpc.max_metadata_size", 16 << 10),
)
SOCKET_MODE = 0o660

_log = logging.getLogger(__name__)


class Door(NamedTuple):
    """The gRPC door, open."""

    health: Health
    addresses: tuple[str, ...]
    """Where it listens, with the ports that it has."""


@asynccontextmanager
async def open_door(
    settings: Grpc, tls: Tls | None, handlers: Sequence[grpc.GenericRpcHandler], *, ready: bool, last_words_s: float
) -> AsyncIterator[Door]:
    """The door as long as the context lasts; leaving cuts what is open after `last_words_s`. Raises OSError where an
    address cannot be had."""
    server = grpc.aio.server(options=[*OPTIONS, *_limits(settings)])
    own = Health(scheduling.NAME, introspection.NAME)
    health_pb2_grpc.add_HealthServicer_to_server(own.servicer, server)
    server.add_generic_rpc_handlers(tuple(handlers))
    if settings.reflection:
        names = (scheduling.NAME, introspection.NAME, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server)
    addresses = tuple(_bind(server, parse_address(text), tls) for text in settings.listen)
    await own.begin(ready=ready)
    await server.start()
    try:
        yield Door(own, addresses)
    finally:
        await server.stop(last_words_s)
        _remove_sockets(settings)


def _limits(settings: Grpc) -> list[tuple[str, int]]:
    size = settings.max_message_bytes
    return [("grpc.max_receive_message_length", size), ("grpc.max_send_message_length", size)]


def _bind(server: grpc.aio.Server, address: Address, tls: Tls | None) -> str:
    """The address as it is bound."""
    try:
        if address.path is not None or tls is None:
            port = server.add_insecure_port(str(address))
        else:
            port = server.add_secure_port(str(address), _credentials(tls))
    except RuntimeError as error:
        raise OSError(f"grpc.listen: {address} cannot be had") from error
    if address.path is not None:
        os.chmod(address.path, SOCKET_MODE)
        return str(address)
    return str(address._replace(port=port))


def _credentials(tls: Tls) -> grpc.ServerCredentials:
    pair = [(tls.key, tls.certificate)]
    return grpc.ssl_server_credentials(pair, tls.client_ca, require_client_auth=tls.client_ca is not None)


def _remove_sockets(settings: Grpc) -> None:
    for path in (parse_address(text).path for text in settings.listen):
        if path is not None:
            Path(path).unlink(missing_ok=True)
