"""Records as Qdrant's points: the payload's schema, and the check that what is read is what was written."""

import sys
import zlib
from array import array
from collections.abc import Mapping
from typing import Any

import msgspec

from sagesched.request import Features
from sagesched_store.record import SCHEMA, Record

FINISHED = "finished_s"
TENANT = "tenant"
MODEL = "model"
_FIELDS = ("model", "tenant", "prompt_tokens", "output_tokens", "censored", "finished_s", "request")


def payload_of(record: Record) -> dict[str, Any]:
    """Flat, with the schema's version and a check over everything, the vector too."""
    plain = {name: getattr(record, name) for name in _FIELDS}
    return {"schema": SCHEMA, **plain, **msgspec.structs.asdict(record.features), "check": _check(record)}


def vector_of(record: Record) -> list[float]:
    """The vector as numbers."""
    numbers = array("f", record.embedding)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def record_from(payload: Mapping[str, Any] | None, vector: Any, embedder: str) -> Record | None:
    """The record; None where it is not what was written."""
    try:
        numbers = array("f", vector)
        if sys.byteorder == "big":
            numbers.byteswap()
        fields = dict(payload or {})
        features = {name: fields[name] for name in Features.__struct_fields__}
        plain = {name: fields[name] for name in _FIELDS}
        plain |= {"embedder": embedder, "embedding": numbers.tobytes(), "features": features}
        record = msgspec.convert(plain, Record)
    except (TypeError, KeyError, OverflowError, msgspec.ValidationError):
        return None
    return record if fields.get("check") == _check(record) else None


def _check(record: Record) -> int:
    return zlib.crc32(msgspec.msgpack.encode(record))
