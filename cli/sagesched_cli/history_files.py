"""Files of records: what `history export` writes, and what `history import` takes beside it. One JSON object a line."""

import base64
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from sagesched.embed import Embedder
from sagesched.features import features_of
from sagesched.request import Features, Outcome, Request
from sagesched_store.record import MAX_TOKENS, Record, Space, record_of

_Tokens = Annotated[int, msgspec.Meta(ge=0, le=MAX_TOKENS)]
_Time = Annotated[float, msgspec.Meta(ge=0, le=1e11)]


class Stored(msgspec.Struct, frozen=True, kw_only=True):
    """A line of an export: a record as the store has it. There is no prompt in it."""

    embedding: str
    """Base64 of float32, little endian."""
    embedder: str
    model: str = ""
    tenant: str = ""
    prompt_tokens: _Tokens
    output_tokens: _Tokens
    censored: bool = False
    features: Features = Features()
    finished_s: _Time
    request: str = ""


class Served(msgspec.Struct, frozen=True, kw_only=True):
    """A line of earlier traffic. The prompt is embedded and forgotten."""

    prompt: str
    output_tokens: Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)]
    prompt_tokens: _Tokens | None = None
    model: str = ""
    tenant: str = ""
    censored: bool = False
    max_tokens: _Tokens | None = None
    finished_s: _Time | None = None
    """Unix seconds; where there is none, that of the file, later lines later."""


def line_of(record: Record) -> bytes:
    """A record as a line of an export."""
    fields = {name: getattr(record, name) for name in record.__struct_fields__}
    stored = Stored(**fields | {"embedding": base64.b64encode(record.embedding).decode()})
    return msgspec.json.encode(stored) + b"\n"


def records_in(file: Path, space: Space, embedder: Embedder) -> Iterator[Record | str]:
    """Each line's record, or what is wrong with the line; blank lines are none. Raises OSError.

    The same file gives the same records, so that importing it twice is importing it once.
    """
    modified_s = file.stat().st_mtime
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                try:
                    yield _record(line, modified_s + number * 1e-6, space, embedder)
                except (msgspec.MsgspecError, ValueError) as error:
                    yield f"line {number}: {_said(error)}"


def _record(line: bytes, finished_s: float, space: Space, embedder: Embedder) -> Record:
    if b'"embedding"' in line:
        return _stored(msgspec.json.decode(line, type=Stored), space)
    served = msgspec.json.decode(line, type=Served)
    request = Request(
        id=hashlib.sha256(line).hexdigest(),
        model=served.model,
        tenant=served.tenant,
        prompt_tokens=max(1, len(served.prompt) // 4) if served.prompt_tokens is None else served.prompt_tokens,
        features=features_of(served.prompt, max_tokens=served.max_tokens),
    )
    vector = np.asarray(embedder.embed(served.prompt), dtype="<f4").tobytes()
    outcome = Outcome(output_tokens=served.output_tokens, censored=served.censored)
    return record_of(request, vector, space.embedder, outcome, served.finished_s or finished_s)


def _stored(stored: Stored, space: Space) -> Record:
    """A line of an export; of the same vector space, or its vectors mean nothing here. Raises ValueError."""
    fields = {name: getattr(stored, name) for name in stored.__struct_fields__}
    record = Record(**fields | {"embedding": base64.b64decode(stored.embedding, validate=True)})
    if record.space != space:
        raise ValueError(f"is of embedder {record.space}, not {space}")
    if not np.isfinite(np.frombuffer(record.embedding, dtype="<f4")).all():
        raise ValueError("its embedding is not finite")
    return record


def _said(error: Exception) -> str:
    """Never the line itself: it may hold a prompt."""
    return str(error) if isinstance(error, msgspec.ValidationError) or "embedd" in str(error) else type(error).__name__
