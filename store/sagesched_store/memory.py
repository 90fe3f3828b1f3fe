"""A store that ends with its process: what the others must do, without a disk."""

import uuid
from collections.abc import Sequence

from sagesched_store.protocol import Health, check_space, excess
from sagesched_store.record import Record, Space


class MemoryStore:
    """See protocol.Store."""

    def __init__(self, space: Space, rows: int) -> None:
        self.space = space
        self.health = Health()
        self._rows = rows
        self._records: dict[uuid.UUID, Record] = {}

    def append(self, records: Sequence[Record]) -> None:
        """See protocol.Store."""
        check_space(records, self.space)
        self._records.update((record.point_id, record) for record in records)
        over = excess(len(self._records), self._rows)
        if over:
            for record in self._in_order()[:over]:
                del self._records[record.point_id]

    def newest(self, limit: int) -> list[Record]:
        """See protocol.Store."""
        return self._in_order()[-limit:] if limit else []

    def count(self, tenant: str | None = None) -> int:
        """See protocol.Store."""
        return sum(tenant is None or record.tenant == tenant for record in self._records.values())

    def delete_tenant(self, tenant: str) -> int:
        """See protocol.Store."""
        gone = [key for key, record in self._records.items() if record.tenant == tenant]
        for key in gone:
            del self._records[key]
        return len(gone)

    def close(self) -> None:
        """See protocol.Store."""

    def _in_order(self) -> list[Record]:
        return sorted(self._records.values(), key=lambda record: record.finished_s)
