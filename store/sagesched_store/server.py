"""The store on a Qdrant server, which many processes share. It never makes its collection (collection.py does)."""

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from qdrant_client import QdrantClient, models

from sagesched_store.collection import WRITER, WRITTEN, check, name_of
from sagesched_store.connection import connect, guarded
from sagesched_store.place import ServerPlace
from sagesched_store.points import FINISHED, MODEL, TENANT, payload_of, record_from, vector_of
from sagesched_store.protocol import (
    MAX_TENANTS,
    Changes,
    Health,
    Page,
    StoreError,
    check_space,
    excess,
    surplus,
)
from sagesched_store.record import Record, Space

_T = TypeVar("_T")
OVERLAP_SECONDS = 10.0
"""How far behind a look at what others wrote begins: their clocks differ, and a write takes time."""
MAX_LOOKED_AT = 20_000
"""Ids that one look may see."""
CHUNK_ROWS = 1000
"""Vectors that one answer holds: some 3 MB."""
LIVES_ON = frozenset({"unreachable", "no-collection", "refused"})


class ServerStore:
    """See protocol.Store. Nothing is asked of the server before the first call, and each call asks it anew: a server
    that was away is back for the next."""

    def __init__(self, place: ServerPlace, space: Space, rows: int, *, clock: Callable[[], float] = time.time) -> None:
        self.space = space
        self._place = place
        self._rows = rows
        self._clock = clock
        self._name = name_of(place, space)
        self._client: QdrantClient | None = None
        self._checked = False
        self._closed = False
        self._damaged = 0
        self._at_most = rows
        """Before the first count it may be full."""
        self._known: dict[str, float] = {}
        """Ids that were read, and when they were written: those that the next look may see again."""

    @property
    def health(self) -> Health:
        """See protocol.Store."""
        return Health(self._damaged)

    def append(self, records: Sequence[Record]) -> None:
        """See protocol.Store."""
        check_space(records, self.space)
        if not records:
            return
        mark = {WRITTEN: round(self._clock(), 6), WRITER: self._place.writer}
        points = [
            models.PointStruct(id=str(one.point_id), vector=vector_of(one), payload=payload_of(one) | mark)
            for one in records
        ]
        self._ask(lambda client: client.upsert(self._name, points, wait=True))
        self._at_most += len(records)
        if excess(self._at_most, self._rows):
            self._retain()

    def newest(self, limit: int, tenant: str | None = None, models: Sequence[str] = ()) -> list[Record]:
        """See protocol.Store."""
        ids = self._ids(limit, _filter(tenant, models), _by(FINISHED, "desc")) if limit else []
        return sorted(self._read([key for key, _ in ids]), key=lambda record: record.finished_s)

    def changes(self, since_s: float, limit: int) -> Changes:
        """See protocol.Store. `limit` of them by their ids, which are as good as drawn."""
        from_s = since_s - OVERLAP_SECONDS
        others = models.Filter(
            must=[models.FieldCondition(key=WRITTEN, range=models.Range(gte=from_s))],
            must_not=[models.FieldCondition(key=WRITER, match=models.MatchValue(value=self._place.writer))],
        )
        seen = dict(self._ids(MAX_LOOKED_AT, others, _by(WRITTEN, "desc"), WRITTEN))
        new = sorted(seen.keys() - self._known.keys())
        records = self._read(new[:limit])
        until_s = max([since_s, *seen.values()])
        known = self._known | seen
        self._known = {key: written_s for key, written_s in known.items() if written_s >= until_s - OVERLAP_SECONDS}
        return Changes(records, until_s, len(new) - len(new[:limit]))

    def page(self, after: str | None, limit: int) -> Page:
        """See protocol.Store."""
        found, following = self._ask(
            lambda client: client.scroll(
                self._name, limit=min(limit, CHUNK_ROWS), offset=after, with_payload=True, with_vectors=True
            )
        )
        return Page(self._decoded(found), None if following is None else str(following))

    def tenants(self) -> dict[str, int]:
        """See protocol.Store."""
        found = self._ask(lambda client: client.facet(self._name, key=TENANT, limit=MAX_TENANTS, exact=True))
        return {str(hit.value): hit.count for hit in found.hits if hit.count}

    def count(self, tenant: str | None = None) -> int:
        """See protocol.Store."""
        return self._ask(lambda client: client.count(self._name, _filter(tenant), exact=True)).count

    def delete_tenant(self, tenant: str) -> int:
        """See protocol.Store."""
        return self._delete(models.FieldCondition(key=TENANT, match=models.MatchValue(value=tenant)))

    def delete_before(self, finished_s: float) -> int:
        """See protocol.Store."""
        return self._delete(models.FieldCondition(key=FINISHED, range=models.Range(lt=finished_s)))

    def close(self) -> None:
        """See protocol.Store."""
        self._closed = True
        self._drop()

    def _delete(self, condition: models.FieldCondition) -> int:
        chosen = models.Filter(must=[condition])
        had = self._ask(lambda client: client.count(self._name, chosen, exact=True)).count
        self._ask(lambda client: client.delete(self._name, models.FilterSelector(filter=chosen), wait=True))
        return had

    def _retain(self) -> None:
        """Delete what is too much, and no more where another process does so in the same moment."""
        counts = self.tenants()
        self._at_most = sum(counts.values())
        if not excess(self._at_most, self._rows):
            return
        for tenant, over in surplus(counts, self._rows).items():
            oldest = self._ids(over, _filter(tenant), _by(FINISHED, "asc"))
            gone = max(0, counts[tenant] - self.count(tenant))
            ids: list[Any] = [key for key, _ in oldest[: max(0, over - gone)]]
            if ids:
                self._ask(lambda client, ids=ids: client.delete(self._name, models.PointIdsList(points=ids), wait=True))  # type: ignore[misc]
            self._at_most -= over

    def _ids(
        self, limit: int, chosen: models.Filter | None, order: models.OrderBy, field: str = FINISHED
    ) -> list[tuple[str, float]]:
        """Ids in that order, and a number of each's payload."""
        found, _ = self._ask(
            lambda client: client.scroll(
                self._name, chosen, limit=limit, order_by=order, with_payload=[field], with_vectors=False
            )
        )
        return [(str(point.id), float((point.payload or {}).get(field, 0.0))) for point in found]

    def _read(self, ids: Sequence[str]) -> list[Record]:
        """The records of these ids, but for those that are gone meanwhile."""
        records: list[Record] = []
        for start in range(0, len(ids), CHUNK_ROWS):
            chunk = list(ids[start : start + CHUNK_ROWS])
            found = self._ask(
                lambda client, chunk=chunk: client.retrieve(self._name, chunk, with_payload=True, with_vectors=True)  # type: ignore[misc]
            )
            records += self._decoded(found)
            for point in found:
                self._known[str(point.id)] = float((point.payload or {}).get(WRITTEN, 0.0))
        return records

    def _decoded(self, points: Iterable[models.Record]) -> list[Record]:
        found = [record_from(point.payload, point.vector, self.space.embedder) for point in points]
        readable = [record for record in found if record is not None]
        self._damaged = max(self._damaged, len(found) - len(readable))
        return readable

    def _ask(self, call: Callable[[QdrantClient], _T]) -> _T:
        """Ask the server; it is looked at first whether the collection is what it should be. Raises StoreError."""
        if self._closed:
            raise StoreError("closed", f"collection {self._name}: the store is closed")
        try:
            client = self._client = self._client or connect(self._place)
            if not self._checked:
                check(client, self._name, self.space)
                self._checked = True
            return guarded(lambda: call(client))
        except StoreError as error:
            if error.reason in LIVES_ON:
                self._drop()  # the next call reads the key anew, and looks at the collection again
            raise

    def _drop(self) -> None:
        client, self._client, self._checked = self._client, None, False
        if client is not None:
            client.close()


def _by(field: str, direction: str) -> models.OrderBy:
    return models.OrderBy(key=field, direction=models.Direction(direction))


def _filter(tenant: str | None, of_models: Sequence[str] = ()) -> models.Filter | None:
    must: list[Any] = []
    if tenant is not None:
        must.append(models.FieldCondition(key=TENANT, match=models.MatchValue(value=tenant)))
    if of_models:
        must.append(models.FieldCondition(key=MODEL, match=models.MatchAny(any=list(of_models))))
    return models.Filter(must=must) if must else None
