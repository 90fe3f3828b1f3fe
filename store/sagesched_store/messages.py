"""What a host and the process that keeps its store say to each other: length-prefixed MessagePack over two pipes."""

import select
import struct
import time
from collections.abc import Callable

import msgspec

from sagesched_store.place import Place
from sagesched_store.protocol import Changes, Health, Page, Reason
from sagesched_store.record import Record

_LENGTH = struct.Struct("<I")


class Opening(msgspec.Struct, frozen=True):
    """What is to be opened: the command line's one argument."""

    place: Place
    embedder: str
    dimensions: int
    rows: int


class Append(msgspec.Struct, frozen=True, tag="append"):
    """Answered with Count of all that were appended."""

    records: list[Record]


class Newest(msgspec.Struct, frozen=True, tag="newest"):
    """Answered with Records."""

    limit: int
    tenant: str | None = None
    models: tuple[str, ...] = ()


class Look(msgspec.Struct, frozen=True, tag="changes"):
    """Answered with Seen."""

    since_s: float
    limit: int


class Turn(msgspec.Struct, frozen=True, tag="page"):
    """Answered with Paged."""

    after: str | None
    limit: int


class Who(msgspec.Struct, frozen=True, tag="tenants"):
    """Answered with Tenants."""


class HowMany(msgspec.Struct, frozen=True, tag="count"):
    """Answered with Count."""

    tenant: str | None


class DeleteTenant(msgspec.Struct, frozen=True, tag="delete-tenant"):
    """Answered with Count."""

    tenant: str


class DeleteBefore(msgspec.Struct, frozen=True, tag="delete-before"):
    """Answered with Count."""

    finished_s: float


class Close(msgspec.Struct, frozen=True, tag="close"):
    """Answered with Count."""


class Ready(msgspec.Struct, frozen=True, tag="ready"):
    """The store is open."""

    health: Health


class Count(msgspec.Struct, frozen=True, tag="counted"):
    """Done; how many."""

    count: int


class Records(msgspec.Struct, frozen=True, tag="records"):
    """In order of time."""

    records: list[Record]
    health: Health


class Seen(msgspec.Struct, frozen=True, tag="seen"):
    """What others wrote."""

    changes: Changes


class Paged(msgspec.Struct, frozen=True, tag="paged"):
    """A page."""

    page: Page


class Tenants(msgspec.Struct, frozen=True, tag="tenants-counted"):
    """Records by tenant."""

    counts: dict[str, int]


class Failed(msgspec.Struct, frozen=True, tag="failed"):
    """A StoreError."""

    reason: Reason
    message: str


Ask = Append | Newest | Look | Turn | Who | HowMany | DeleteTenant | DeleteBefore | Close
Answer = Ready | Count | Records | Seen | Paged | Tenants | Failed
ASK = msgspec.msgpack.Decoder(Ask)
ANSWER = msgspec.msgpack.Decoder(Answer)


def packed(message: Ask | Answer) -> bytes:
    """The message as it goes over the pipe."""
    body = msgspec.msgpack.encode(message)
    return _LENGTH.pack(len(body)) + body


def read_message(read: Callable[[int], bytes]) -> bytes | None:
    """The next message's body; None at the end of the pipe. `read(n)` gives up to n bytes, b"" at the end."""
    head = _exactly(read, _LENGTH.size)
    return None if head is None else _exactly(read, _LENGTH.unpack(head)[0])


def reader_until(file: int, read: Callable[[int, int], bytes], deadline_s: float) -> Callable[[int], bytes]:
    """Reads from a file descriptor; raises TimeoutError once time.monotonic() is past the deadline."""
    poll = select.poll()
    poll.register(file, select.POLLIN)

    def read_some(size: int) -> bytes:
        if not poll.poll(max(0.0, deadline_s - time.monotonic()) * 1000):
            raise TimeoutError
        return read(file, size)

    return read_some


def _exactly(read: Callable[[int], bytes], size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = read(min(size - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)
