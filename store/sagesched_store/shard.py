"""The one door to Qdrant Edge: points of one vector space in one folder.

Its own write-ahead log is off (docs/adr/0006-history-on-disk.md): what was upserted lasts once `flush` returns. Its
calls hold Python's lock for as long as they take, up to seconds, which is why a host opens it in a process of its own.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar
from uuid import UUID

import qdrant_edge as edge

from sagesched_store.points import FINISHED, MODEL, TENANT, payload_of, record_from, vector_of
from sagesched_store.protocol import MAX_TENANTS, StoreError
from sagesched_store.record import Record, Space

_T = TypeVar("_T")
_NO_GRAPH = edge.HnswIndexConfig(m=0, ef_construct=16, full_scan_threshold=1_000_000)
"""Nobody searches it by likeness yet, and building the graph took 21 s for 30,000 rows."""
_VACUUM = edge.EdgeOptimizersConfig(deleted_threshold=0.2, vacuum_min_vector_number=1000, default_segment_number=1)


class Shard:
    """Opens the folder or makes it. Raises StoreError `damaged` whatever the engine trips over."""

    def __init__(self, folder: Path, space: Space) -> None:
        self._space = space
        if (folder / "edge_config.json").exists():
            self._shard = _guarded(lambda: edge.EdgeShard.load(str(folder)))
        else:
            folder.mkdir(exist_ok=True)
            self._shard = _guarded(lambda: edge.EdgeShard.create(str(folder), _config(space)))
        # Before the first point, and again where the process ended in between: it is no work when they are there.
        self._update(edge.UpdateOperation.create_field_index(FINISHED, edge.PayloadSchemaType.Float))
        self._update(edge.UpdateOperation.create_field_index(TENANT, edge.KeywordIndexParams(is_tenant=True)))

    def upsert(self, records: Sequence[Record]) -> None:
        """Insert, or overwrite what has the same id."""
        points = [edge.Point(record.point_id, vector_of(record), payload_of(record)) for record in records]
        self._update(edge.UpdateOperation.upsert_points(points))

    def newest(self, limit: int, tenant: str | None, models: Sequence[str]) -> tuple[list[Record], int]:
        """The last `limit` in order of time, and how many more could not be read."""
        order = edge.OrderBy(FINISHED, edge.Direction.Desc)
        request = edge.ScrollRequest(
            limit=limit, filter=_of(tenant, models), with_payload=True, with_vector=True, order_by=order
        )
        found, _ = _guarded(lambda: self._shard.scroll(request))
        return self._read(found[::-1])

    def page(self, after: str | None, limit: int) -> tuple[list[Record], int, str | None]:
        """A page in the order of ids, how many of it could not be read, and where the next one begins."""
        offset = None if after is None else UUID(after)
        request = edge.ScrollRequest(limit=limit, offset=offset, with_payload=True, with_vector=True)
        found, following = _guarded(lambda: self._shard.scroll(request))
        return (*self._read(found), None if following is None else str(following))

    def tenants(self) -> dict[str, int]:
        """Records by tenant."""
        request = edge.FacetRequest(TENANT, limit=MAX_TENANTS, exact=True)
        return {str(hit.value): hit.count for hit in _guarded(lambda: self._shard.facet(request)).hits if hit.count}

    def delete_oldest(self, count: int, tenant: str) -> None:
        """Delete so many of a tenant's from the beginning."""
        order = edge.OrderBy(FINISHED, edge.Direction.Asc)
        request = edge.ScrollRequest(
            limit=count, filter=_of(tenant), with_payload=False, with_vector=False, order_by=order
        )
        found, _ = _guarded(lambda: self._shard.scroll(request))
        self._update(edge.UpdateOperation.delete_points([point.id for point in found]))

    def delete_before(self, finished_s: float) -> None:
        """Delete all that finished before."""
        old = edge.Filter(must=[edge.FieldCondition(FINISHED, range=edge.RangeFloat(lt=finished_s))])
        self._update(edge.UpdateOperation.delete_points_by_filter(old))

    def delete_tenant(self, tenant: str) -> None:
        """Delete all of a tenant's."""
        self._update(edge.UpdateOperation.delete_points_by_filter(edge.Filter(must=[_is(tenant)])))

    def count(self, tenant: str | None) -> int:
        """Records in all, or a tenant's."""
        chosen = edge.CountRequest(filter=_of(tenant))
        return _guarded(lambda: self._shard.count(chosen))

    def vacuum(self) -> None:
        """Rewrite segments of which a fifth is deleted."""
        _guarded(self._shard.optimize)

    def flush(self) -> None:
        """Returns once everything is on the disk."""
        _guarded(self._shard.flush)

    def close(self) -> None:
        """Flush and give the folder back."""
        _guarded(self._shard.close)

    def _read(self, found: Sequence[edge.Record]) -> tuple[list[Record], int]:
        records = [record_from(point.payload, point.vector, self._space.embedder) for point in found]
        readable = [record for record in records if record is not None]
        return readable, len(records) - len(readable)

    def _update(self, operation: edge.UpdateOperation) -> None:
        _guarded(lambda: self._shard.update(operation))


def _config(space: Space) -> edge.EdgeConfig:
    # Dot, as the vectors are unit ones: under Cosine they would be scaled again, and not come back as they were.
    vectors = edge.EdgeVectorParams(size=space.dimensions, distance=edge.Distance.Dot)
    return edge.EdgeConfig(vectors=vectors, hnsw_config=_NO_GRAPH, optimizers=_VACUUM, wal_enabled=False)


def _of(tenant: str | None, models: Sequence[str] = ()) -> edge.Filter | None:
    tenants = [] if tenant is None else [_is(tenant)]
    named = [edge.FieldCondition(MODEL, match=edge.MatchAny(list(models)))] if models else []
    return edge.Filter(must=[*tenants, *named]) if tenants or named else None


def _is(tenant: str) -> edge.FieldCondition:
    return edge.FieldCondition(TENANT, match=edge.MatchValue(tenant))


def _guarded(call: Callable[[], _T]) -> _T:
    try:
        return call()
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # its panics are no Exception
        raise StoreError("damaged", f"Qdrant Edge: {error}") from error
