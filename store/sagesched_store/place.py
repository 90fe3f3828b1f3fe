"""Where a store is, and how it is opened there."""

from pathlib import Path

import msgspec

from sagesched_store.protocol import Store
from sagesched_store.record import Space


class FolderPlace(msgspec.Struct, frozen=True, tag="folder"):
    """On this machine's disk."""

    root: str


class ServerPlace(msgspec.Struct, frozen=True, kw_only=True, tag="server"):
    """A Qdrant server, shared with others. Secrets are named by their file."""

    url: str
    """http(s)://HOST:PORT of its REST API."""
    prefix: str = "sagesched"
    """How its collections' names begin."""
    api_key_file: str | None = None
    ca_file: str | None = None
    """PEM certificates that the server's is believed by; the system's where there is none."""
    timeout_s: float = 5.0
    writer: str = ""
    """Marks what this process writes, so that it does not read it back."""


Place = FolderPlace | ServerPlace


def open_store(place: Place, space: Space, rows: int) -> Store:
    """The store there, in this process; what Qdrant needs is imported only now. Raises StoreError."""
    if isinstance(place, FolderPlace):
        from sagesched_store.embedded import EmbeddedStore

        return EmbeddedStore(Path(place.root), space, rows)
    from sagesched_store.server import ServerStore

    return ServerStore(place, space, rows)
