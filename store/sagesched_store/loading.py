"""What a window is filled with at a start: the newest records, and of each tenant some."""

from collections.abc import Sequence

from sagesched_store.protocol import Store
from sagesched_store.record import Record

GUARANTEED = 0.5
"""The part of a window that is divided among the tenants; the rest goes to whoever was there last."""


def newest_window(store: Store, rows: int, models: Sequence[str] = ()) -> list[Record]:
    """About the newest `rows`, never more, in order of time; of each tenant the newest of an equal part of half of
    them, however long ago. Raises StoreError."""
    counts = store.tenants()
    share = int(rows * GUARANTEED) // max(1, len(counts))
    newest = store.newest(rows, None, models)
    by_tenant: dict[str, list[Record]] = {tenant: [] for tenant in counts}
    for record in newest:
        by_tenant.setdefault(record.tenant, []).append(record)
    for tenant, count in counts.items():
        if len(by_tenant[tenant]) < min(count, share):
            by_tenant[tenant] = store.newest(share, tenant, models)
    owed = [record for records in by_tenant.values() if share for record in records[-share:]]
    held = {record.point_id for record in owed}
    others = [record for record in newest if record.point_id not in held]
    room = max(0, rows - len(owed))
    return _in_order(owed + (others[-room:] if room else []))[-rows:]


def _in_order(records: list[Record]) -> list[Record]:
    return sorted(records, key=lambda record: record.finished_s)
