"""A store's folder: held by one process at a time, of one schema and one vector space."""

import fcntl
import os
import time
from pathlib import Path

import msgspec

from sagesched_store.journal import sync_folder
from sagesched_store.protocol import StoreError
from sagesched_store.record import SCHEMA, Space

MANIFEST = "store.json"
POLL_SECONDS = 0.05


class _Manifest(msgspec.Struct):
    schema: int
    embedder: str = ""
    dimensions: int = 0


class Folder:
    """Held from here on, until `release` or the end of the process.

    Raises StoreError: `locked` when another process holds it for longer than `patience_s`, `schema`, `unwritable`.
    """

    def __init__(self, path: Path, space: Space, patience_s: float) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError("unwritable", f"{path}: {error.strerror}") from error
        try:
            self._take(patience_s)
            self._check(space)
        except BaseException:
            os.close(self._lock)
            raise

    def release(self) -> None:
        """Let others have it."""
        os.close(self._lock)

    def _take(self, patience_s: float) -> None:
        until_s = time.monotonic() + patience_s
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() >= until_s:
                    holder = os.pread(self._lock, 20, 0).decode("ascii", "replace") or "unknown"
                    raise StoreError("locked", f"{self.path}: held by another process ({holder})") from None
            time.sleep(POLL_SECONDS)
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, str(os.getpid()).encode(), 0)

    def _check(self, space: Space) -> None:
        file = self.path / MANIFEST
        wanted = _Manifest(SCHEMA, *space)
        try:
            found = msgspec.json.decode(file.read_bytes(), type=_Manifest)
        except FileNotFoundError:
            _write_whole(file, msgspec.json.encode(wanted))
            return
        except (OSError, msgspec.DecodeError) as error:
            raise StoreError("damaged", f"{file} cannot be read: {error}") from error
        if found.schema != SCHEMA:
            known = f"schema {found.schema}, this version reads {SCHEMA} only"
            raise StoreError("schema", f"{self.path}: {known}; use another path, or the version that wrote it")
        if found != wanted:
            raise StoreError("schema", f"{self.path}: of {found.embedder!r}, {found.dimensions} dimensions")


def _write_whole(file: Path, content: bytes) -> None:
    """All of it or nothing, whenever the process ends."""
    new = file.with_suffix(".new")
    handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, content)
        os.fsync(handle)
    finally:
        os.close(handle)
    new.rename(file)
    sync_folder(file.parent)
