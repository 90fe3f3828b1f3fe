"""A store that ends with its process: what the others must do, without a disk."""

import uuid
from collections import Counter
from collections.abc import Sequence

from sagesched_store.protocol import Changes, Health, Page, check_space, excess, surplus
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
        if excess(len(self._records), self._rows):
            for tenant, count in surplus(self.tenants(), self._rows).items():
                for record in self._in_order(tenant)[:count]:
                    del self._records[record.point_id]

    def newest(self, limit: int, tenant: str | None = None, models: Sequence[str] = ()) -> list[Record]:
        """See protocol.Store."""
        chosen = [record for record in self._in_order(tenant) if not models or record.model in models]
        return chosen[-limit:] if limit else []

    def changes(self, since_s: float, limit: int) -> Changes:
        """See protocol.Store."""
        return Changes([], since_s)

    def page(self, after: str | None, limit: int) -> Page:
        """See protocol.Store."""
        ids = sorted(key for key in self._records if after is None or key >= uuid.UUID(after))
        return Page([self._records[key] for key in ids[:limit]], str(ids[limit]) if len(ids) > limit else None)

    def tenants(self) -> dict[str, int]:
        """See protocol.Store."""
        return dict(Counter(record.tenant for record in self._records.values()).most_common())

    def count(self, tenant: str | None = None) -> int:
        """See protocol.Store."""
        return sum(tenant is None or record.tenant == tenant for record in self._records.values())

    def delete_tenant(self, tenant: str) -> int:
        """See protocol.Store."""
        gone = [key for key, record in self._records.items() if record.tenant == tenant]
        for key in gone:
            del self._records[key]
        return len(gone)

    def delete_before(self, finished_s: float) -> int:
        """See protocol.Store."""
        gone = [key for key, record in self._records.items() if record.finished_s < finished_s]
        for key in gone:
            del self._records[key]
        return len(gone)

    def close(self) -> None:
        """See protocol.Store."""

    def _in_order(self, tenant: str | None = None) -> list[Record]:
        chosen = [record for record in self._records.values() if tenant is None or record.tenant == tenant]
        return sorted(chosen, key=lambda record: record.finished_s)
