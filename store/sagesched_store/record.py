"""What is stored of one finished request, and the vector space that it belongs to."""

import hashlib
import re
import uuid
from typing import NamedTuple

import msgspec

from sagesched.request import Features, Outcome, Request

SCHEMA = 1
"""Version of what follows; stores refuse folders and collections of another one."""
MAX_NAME_CHARACTERS = 256
MAX_EFFORT_CHARACTERS = 32
MAX_TOKENS = (1 << 31) - 1
_POINTS = uuid.UUID("b3c0a0f2-6d0e-5b0a-9d57-0c9b8f6f4a11")
"""Namespace of point ids."""


class Space(NamedTuple):
    """A vector space: vectors of two embedders never meet."""

    embedder: str
    """The embedder's name; it names its version too."""
    dimensions: int

    @property
    def slug(self) -> str:
        """Name of the folder or collection: readable, and one for each space."""
        readable = re.sub(r"[^A-Za-z0-9._-]+", "-", self.embedder).strip("-.")[:64]
        digest = hashlib.sha256(self.embedder.encode("utf-8", "replace")).hexdigest()[:8]
        return f"{readable}-{self.dimensions}-{digest}"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One finished request. Lengths are tokens of one choice."""

    embedding: bytes
    """float32, little endian, `dimensions` of them."""
    embedder: str
    model: str = ""
    tenant: str = ""
    prompt_tokens: int
    output_tokens: int
    censored: bool = False
    features: Features = Features()
    finished_s: float
    """Unix seconds."""
    request: str = ""
    """A hash of the request's id."""

    @property
    def point_id(self) -> uuid.UUID:
        """The same for the same record, so that one that is written twice is one sample."""
        return uuid.uuid5(_POINTS, f"{self.tenant}\0{self.model}\0{self.request}\0{self.finished_s!r}")

    @property
    def space(self) -> Space:
        """Where its vector lies."""
        return Space(self.embedder, len(self.embedding) // 4)


def record_of(request: Request, embedding: bytes, embedder: str, outcome: Outcome, finished_s: float) -> Record:
    """How a request ended, as it is stored: names cut, numbers bounded, the id hashed.

    Fractions are rounded to digits that every store gives back as they are: Qdrant's payloads are read by a parser of
    numbers that is exact up to 2**53 in all digits, and an instant of time.time() has more.
    """
    features = request.features
    tokens = request.prompt_tokens if outcome.prompt_tokens is None else outcome.prompt_tokens
    return Record(
        embedding=embedding,
        embedder=embedder,
        model=_name(request.model, MAX_NAME_CHARACTERS),
        tenant=_name(request.tenant, MAX_NAME_CHARACTERS),
        prompt_tokens=min(tokens, MAX_TOKENS),
        output_tokens=min(outcome.output_tokens, MAX_TOKENS),
        censored=outcome.censored,
        features=msgspec.structs.replace(
            features,
            asked_number=None if features.asked_number is None else _asked(features.asked_number),
            max_tokens=None if features.max_tokens is None else min(features.max_tokens, MAX_TOKENS),
            choices=min(features.choices, MAX_TOKENS),
            effort=_name(features.effort, MAX_EFFORT_CHARACTERS),
        ),
        finished_s=round(finished_s, 6),
        request=hashlib.sha256(request.id.encode("utf-8", "replace")).hexdigest()[:32],
    )


def _name(text: str, limit: int) -> str:
    # A lone surrogate is a str but not text, and no store takes it.
    return text[:limit].encode("utf-8", "replace").decode("utf-8")


def _asked(tokens: float) -> float:
    return round(min(float(tokens), float(MAX_TOKENS)), 3)
