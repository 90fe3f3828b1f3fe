"""The embedded store: a journal in front, Qdrant Edge behind it, one folder for each vector space.

A record is durable once it is in the journal. Edge gets it at once, but has it on the disk only after a flush; then the
journal begins anew. What Edge had not flushed when the process ended is played to it again from the journal.
"""

import os
import shutil
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path

import msgspec

from sagesched_store.folder import Folder
from sagesched_store.journal import Journal
from sagesched_store.protocol import Changes, Health, Page, StoreError, check_space, excess, surplus
from sagesched_store.record import Record, Space
from sagesched_store.shard import Shard

CHECKPOINT_BYTES = 4 << 20
"""Size of the journal at which Edge is flushed: about 5,000 records of 128 dimensions."""
MIN_FREE_BYTES = 64 << 20
"""Edge writes through memory maps, which on a full disk end the process; with less room nothing is written."""
DAMAGED = "damaged"
"""Where a shard goes that cannot be opened; one is kept, not more."""
PATIENCE_SECONDS = 5.0
"""How long the folder of a process that has just been killed is waited for."""


class Kept(msgspec.Struct, frozen=True, tag="kept"):
    """Entry of the journal: a record."""

    record: Record


class Forgotten(msgspec.Struct, frozen=True, tag="forgotten"):
    """Entry of the journal: a tenant was deleted."""

    tenant: str


class Pruned(msgspec.Struct, frozen=True, tag="pruned"):
    """Entry of the journal: what finished before was deleted."""

    finished_s: float


Change = Kept | Forgotten | Pruned
_ENTRY = msgspec.msgpack.Decoder(Change)


class EmbeddedStore:
    """See protocol.Store. Raises StoreError when the folder cannot be had; what cannot be opened is set aside."""

    def __init__(
        self,
        root: Path,
        space: Space,
        rows: int,
        *,
        checkpoint_bytes: int = CHECKPOINT_BYTES,
        min_free_bytes: int = MIN_FREE_BYTES,
        patience_s: float = PATIENCE_SECONDS,
    ) -> None:
        self.space = space
        self._rows = rows
        self._checkpoint_bytes = checkpoint_bytes
        self._min_free_bytes = min_free_bytes
        self._folder = Folder(root / space.slug, space, patience_s)
        self._closed = False
        with ExitStack() as opening:
            opening.callback(self._folder.release)
            try:
                self._journal = Journal(self._folder.path / "journal")
                opening.callback(self._journal.close)
                self._shard, self._set_aside = _open_shard(self._folder.path, space)
            except OSError as error:
                raise StoreError("unwritable", f"{self._folder.path}: {error}") from error
            self._damaged = self._journal.damaged
            self._replay()
            self._retain()  # the journal may have brought back what had been deleted as too old
            opening.pop_all()

    @property
    def health(self) -> Health:
        """See protocol.Store."""
        return Health(self._damaged, self._set_aside)

    def append(self, records: Sequence[Record]) -> None:
        """See protocol.Store."""
        check_space(records, self.space)
        if not records:
            return
        self._check_room()
        self._write([Kept(record) for record in records])
        self._shard.upsert(records)
        self._at_most += len(records)
        if excess(self._at_most, self._rows):
            self._retain()
        if self._journal.size_bytes >= self._checkpoint_bytes:
            self._checkpoint()

    def newest(self, limit: int, tenant: str | None = None, models: Sequence[str] = ()) -> list[Record]:
        """See protocol.Store."""
        self._check_open()
        records, damaged = self._shard.newest(limit, tenant, models) if limit else ([], 0)
        self._damaged = max(self._damaged, damaged)
        return records

    def changes(self, since_s: float, limit: int) -> Changes:
        """See protocol.Store."""
        return Changes([], since_s)

    def page(self, after: str | None, limit: int) -> Page:
        """See protocol.Store."""
        self._check_open()
        records, _, following = self._shard.page(after, limit)
        return Page(records, following)

    def tenants(self) -> dict[str, int]:
        """See protocol.Store."""
        self._check_open()
        return self._shard.tenants()

    def count(self, tenant: str | None = None) -> int:
        """See protocol.Store."""
        self._check_open()
        return self._shard.count(tenant)

    def delete_tenant(self, tenant: str) -> int:
        """See protocol.Store."""
        return self._delete(Forgotten(tenant))

    def delete_before(self, finished_s: float) -> int:
        """See protocol.Store."""
        return self._delete(Pruned(finished_s))

    def close(self) -> None:
        """See protocol.Store."""
        if self._closed:
            return
        self._closed = True
        try:
            self._checkpoint()
            self._shard.close()
        finally:
            self._journal.close()
            self._folder.release()

    def _delete(self, change: Forgotten | Pruned) -> int:
        """In the journal first, so that no crash brings back what was deleted; how many records."""
        self._check_open()
        had = self._shard.count(None)
        self._write([change])
        self._play(change)
        self._shard.vacuum()
        shutil.rmtree(self._folder.path / DAMAGED, ignore_errors=True)
        self._checkpoint()
        self._at_most = self._shard.count(None)
        return had - self._at_most

    def _write(self, entries: Sequence[Change]) -> None:
        try:
            self._journal.append([msgspec.msgpack.encode(entry) for entry in entries])
        except OSError as error:
            raise StoreError("unwritable", f"{self._folder.path}: {error}") from error

    def _replay(self) -> None:
        """What the journal holds, in order; the same again does no harm."""
        changes = [change for change in map(_decoded, self._journal.recovered) if change is not None]
        self._damaged += len(self._journal.recovered) - len(changes)
        for kept, run in groupby(changes, lambda change: isinstance(change, Kept)):
            if kept:
                self._shard.upsert([change.record for change in run if isinstance(change, Kept)])
            else:
                for change in run:
                    self._play(change)
        if self._journal.recovered:
            self._checkpoint()
            self._journal.recovered = []

    def _play(self, deletion: Change) -> None:
        if isinstance(deletion, Forgotten):
            self._shard.delete_tenant(deletion.tenant)
        elif isinstance(deletion, Pruned):
            self._shard.delete_before(deletion.finished_s)

    def _retain(self) -> None:
        self._at_most = self._shard.count(None)
        if not excess(self._at_most, self._rows):
            return
        for tenant, count in surplus(self._shard.tenants(), self._rows).items():
            self._shard.delete_oldest(count, tenant)
            self._at_most -= count
        self._shard.vacuum()

    def _checkpoint(self) -> None:
        self._shard.flush()
        self._journal.clear()

    def _check_room(self) -> None:
        self._check_open()
        room = os.statvfs(self._folder.path)
        if room.f_bavail * room.f_frsize < self._min_free_bytes:
            raise StoreError("disk-full", f"{self._folder.path}: less than {self._min_free_bytes} bytes are free")

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("closed", f"{self._folder.path}: the store is closed")


def _decoded(entry: bytes) -> Change | None:
    try:
        return _ENTRY.decode(entry)
    except msgspec.MsgspecError:
        return None


def _open_shard(folder: Path, space: Space) -> tuple[Shard, str]:
    """The shard, and where the one that was there lies now if it could not be opened."""
    try:
        return Shard(folder / "edge", space), ""
    except StoreError:
        aside = folder / DAMAGED
        shutil.rmtree(aside, ignore_errors=True)
        (folder / "edge").rename(aside)
        return Shard(folder / "edge", space), str(aside)
