"""A small write-ahead log: entries that outlive the process once `append` returns.

An entry is framed by a mark, its length and a CRC-32 over length and content. A file that ends within an entry was cut
short while it was written; it is cut back to its last whole entry. Damage before that is skipped up to the next frame
that is whole, so it costs no more than the entries that it touches.
"""

import os
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

_MARK = b"\xf5SJ1"
_HEAD = struct.Struct("<4sII")


class Scan(NamedTuple):
    """What a log's bytes hold."""

    entries: list[bytes]
    damaged: int
    """Stretches that could not be read; each hid at least one entry."""
    end: int
    """Bytes up to the end of the last whole entry."""


def frame(entry: bytes) -> bytes:
    """The entry as it stands in the file."""
    return _HEAD.pack(_MARK, len(entry), _checksum(entry)) + entry


def scan(data: bytes) -> Scan:
    """Every entry that is whole, in order."""
    entries: list[bytes] = []
    damaged, at, end = 0, 0, 0
    while at < len(data):
        entry = _entry_at(data, at)
        if entry is None:
            skipped_to = _next_whole(data, at)
            if skipped_to is None:
                return Scan(entries, damaged + (not _is_cut_short(data, at)), end)
            damaged, at = damaged + 1, skipped_to
        else:
            entries.append(entry)
            at = end = at + _HEAD.size + len(entry)
    return Scan(entries, damaged, end)


class Journal:
    """An append-only file. `sync` puts what was written on the disk: fdatasync, so that power loss costs no entry.

    Raises OSError. It belongs to one thread.
    """

    def __init__(self, path: Path, sync: Callable[[int], None] = os.fdatasync) -> None:
        self._sync = sync
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        found = scan(path.read_bytes())
        self.recovered = found.entries
        """What was in it when it was opened."""
        self.damaged = found.damaged
        self.size_bytes = found.end
        os.ftruncate(self._file, found.end)
        sync_folder(path.parent)

    def append(self, entries: Sequence[bytes]) -> None:
        """Returns once all are on the disk; raises with none of them there."""
        data = b"".join(map(frame, entries))
        try:
            written = os.write(self._file, data)
            if written < len(data):
                raise OSError(f"only {written} of {len(data)} bytes could be written")
            self._sync(self._file)
        except OSError:
            os.ftruncate(self._file, self.size_bytes)
            raise
        self.size_bytes += len(data)

    def clear(self) -> None:
        """Forget everything: it is kept elsewhere now."""
        os.ftruncate(self._file, 0)
        self._sync(self._file)
        self.size_bytes = 0

    def close(self) -> None:
        """Give the file back."""
        os.close(self._file)


def sync_folder(folder: Path) -> None:
    """Put a folder's list of files on the disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _checksum(entry: bytes) -> int:
    return zlib.crc32(entry, len(entry))


def _entry_at(data: bytes, at: int) -> bytes | None:
    if len(data) - at < _HEAD.size:
        return None
    mark, length, checksum = _HEAD.unpack_from(data, at)
    entry = data[at + _HEAD.size : at + _HEAD.size + length] if mark == _MARK else b""
    whole = mark == _MARK and len(entry) == length and _checksum(entry) == checksum
    return entry if whole else None


def _next_whole(data: bytes, after: int) -> int | None:
    """Where the next whole frame begins."""
    at = data.find(_MARK, after + 1)
    while at >= 0:
        if _entry_at(data, at) is not None:
            return at
        at = data.find(_MARK, at + 1)
    return None


def _is_cut_short(data: bytes, at: int) -> bool:
    """Whether what stands there is the beginning of a frame whose end was never written."""
    if len(data) - at < _HEAD.size:
        return _MARK.startswith(data[at : at + len(_MARK)])
    mark, length, _ = _HEAD.unpack_from(data, at)
    return bool(mark == _MARK and len(data) - at - _HEAD.size < length)
