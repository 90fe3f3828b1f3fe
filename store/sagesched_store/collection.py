"""One collection for each vector space: how it is made, and whether it is one of ours, of this schema.

It is made by `sagesched history init`, never by a store: many sidecars that start at once must not race for its shape.
"""

from typing import Any, NamedTuple

from qdrant_client import QdrantClient, models

from sagesched_store.connection import guarded, made
from sagesched_store.place import ServerPlace
from sagesched_store.points import FINISHED, MODEL, TENANT
from sagesched_store.protocol import StoreError
from sagesched_store.record import SCHEMA, Space

WRITTEN = "written_s"
WRITER = "writer"
INDEXES: dict[str, models.PayloadSchemaType | models.KeywordIndexParams] = {
    TENANT: models.KeywordIndexParams(type=models.KeywordIndexType.KEYWORD, is_tenant=True),
    MODEL: models.PayloadSchemaType.KEYWORD,
    FINISHED: models.PayloadSchemaType.FLOAT,
    WRITTEN: models.PayloadSchemaType.FLOAT,
}
"""Made before the first point: what is filtered or ordered by."""


class Shape(NamedTuple):
    """How a collection is spread over a server's nodes."""

    shards: int = 1
    replicas: int = 1


def name_of(place: ServerPlace, space: Space) -> str:
    """The collection's name."""
    return f"{place.prefix}-{space.slug}"


def create(client: QdrantClient, place: ServerPlace, space: Space, shape: Shape) -> bool:
    """Make the collection and its indexes; whether it was not there before. One that is there is checked and its
    indexes completed, so that two who make it at once both succeed. Raises StoreError."""
    name = name_of(place, space)
    new = made(lambda: client.create_collection(name, **_config(space, shape)))
    check(client, name, space)
    for field, kind in INDEXES.items():
        guarded(lambda field=field, kind=kind: client.create_payload_index(name, field, kind, wait=True))  # type: ignore[misc]
    return new


def check(client: QdrantClient, name: str, space: Space) -> None:
    """Raises StoreError: `no-collection`, or `schema` for one of another schema or space, or that is not ours."""
    found = guarded(lambda: client.get_collection(name)).config.metadata or {}
    schema = found.get("schema")
    if schema != SCHEMA:
        known = f"schema {schema}, this version reads {SCHEMA} only" if schema else "no collection of SageSched's"
        raise StoreError("schema", f"collection {name}: {known}")
    if (found.get("embedder"), found.get("dimensions")) != space:
        raise StoreError("schema", f"collection {name}: of {found.get('embedder')!r}, not of {space.embedder!r}")


def spaces(client: QdrantClient, place: ServerPlace) -> list[Space]:
    """The vector spaces that have a collection of ours there, of any schema."""
    names = [one.name for one in guarded(client.get_collections).collections if one.name.startswith(place.prefix + "-")]
    found = [guarded(lambda name=name: client.get_collection(name)).config.metadata or {} for name in sorted(names)]  # type: ignore[misc]
    return [Space(str(one["embedder"]), int(one["dimensions"])) for one in found if "embedder" in one]


def _config(space: Space, shape: Shape) -> dict[str, Any]:
    # Dot, as the vectors are unit ones: under Cosine they would be scaled again, and not come back as they were.
    int8 = models.ScalarQuantizationConfig(type=models.ScalarType.INT8, quantile=0.99, always_ram=False)
    return {
        "vectors_config": models.VectorParams(size=space.dimensions, distance=models.Distance.DOT, on_disk=True),
        "quantization_config": models.ScalarQuantization(scalar=int8),
        "shard_number": shape.shards,
        "replication_factor": shape.replicas,
        "on_disk_payload": True,
        "metadata": {"schema": SCHEMA, "embedder": space.embedder, "dimensions": space.dimensions},
    }
