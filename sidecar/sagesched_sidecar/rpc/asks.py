"""A message's subject and events as what the scheduler takes, every field checked and named where it is wrong."""

import math
from typing import NamedTuple

import numpy as np

from sagesched.history import Vector
from sagesched.lengths import FloatArray
from sagesched.request import Outcome
from sagesched_pb.v1 import prediction_pb2 as wire
from sagesched_pb.v1 import scheduling_pb2 as calls
from sagesched_sidecar.orders import ACCEPTABLE_ID
from sagesched_sidecar.rpc.failures import Violation, violated
from sagesched_sidecar.surfaces import MAX_CHOICES, MAX_NAME_CHARACTERS, Ask

MAX_TOKENS = 1 << 31


class Asked(NamedTuple):
    """A subject decoded."""

    ask: Ask
    text: str | None
    """The prompt; None where an embedding came instead, or neither."""
    embedding: Vector | None
    tenant: str


class SubjectReader:
    """Decodes subjects for an embedder of so many dimensions."""

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions

    def read(self, subject: wire.Subject, path: str = "subject") -> Asked:
        """Raises Failure that names every field that is wrong."""
        wrong = [*_names(subject, path), *_amounts(subject, path)]
        embedding = None
        if subject.HasField("embedding"):
            values = np.array(subject.embedding.values, dtype=np.float64)
            embedding = self._unit(values)
            if embedding is None:
                wrong.append(Violation(f"{path}.embedding.values", self._wanted(values.size)))
        if wrong:
            raise violated(wrong)
        text = subject.text if subject.HasField("text") else None
        return Asked(_ask(subject, text), text, embedding, subject.tenant)

    def _unit(self, values: FloatArray) -> Vector | None:
        norm = float(np.linalg.norm(values))
        if values.size != self._dimensions or not math.isfinite(norm) or norm == 0:
            return None
        return (values / norm).astype(np.float32)

    def _wanted(self, size: int) -> str:
        return f"must be {self._dimensions} finite numbers that are not all 0, not {size} of any kind"


def checked_id(request_id: str) -> str:
    """The id that the client wants, or none. Raises Violation."""
    if request_id and not ACCEPTABLE_ID.fullmatch(request_id):
        raise Violation("request_id", "must be 1 to 128 printable ASCII characters without a space")
    return request_id


def outcome_of(event: calls.Event, path: str = "event") -> Outcome | None:
    """What an event says of the length of the whole answer; None where it says nothing. Raises Violation."""
    kind = event.WhichOneof("kind")
    if kind is None:
        raise Violation(path, "must be progress, completion, departure or engine_failure")
    tokens = {
        "progress": event.progress.generated_tokens,
        "completion": event.completion.output_tokens,
        "departure": event.departure.generated_tokens,
    }.get(kind, 0)
    prompt_tokens = event.completion.prompt_tokens if event.completion.HasField("prompt_tokens") else None
    if max(tokens, prompt_tokens or 0) >= MAX_TOKENS:
        raise Violation(f"{path}.{kind}", "must be less than 2^31 tokens")
    if kind == "completion":
        return Outcome(output_tokens=tokens, prompt_tokens=prompt_tokens, censored=event.completion.censored)
    return Outcome(output_tokens=tokens, censored=True) if kind == "departure" else None


def _names(subject: wire.Subject, path: str) -> list[Violation]:
    names = {"model": subject.model, "tenant": subject.tenant, "features.effort": subject.features.effort}
    return [
        Violation(f"{path}.{name}", f"must be at most {MAX_NAME_CHARACTERS} characters")
        for name, value in names.items()
        if len(value) > MAX_NAME_CHARACTERS
    ]


def _amounts(subject: wire.Subject, path: str) -> list[Violation]:
    features, wrong = subject.features, []
    if max(subject.prompt_tokens, features.max_tokens) >= MAX_TOKENS:
        which = "features.max_tokens" if features.max_tokens >= MAX_TOKENS else "prompt_tokens"
        wrong.append(Violation(f"{path}.{which}", "must be less than 2^31"))
    if features.choices > MAX_CHOICES:
        wrong.append(Violation(f"{path}.features.choices", f"must be at most {MAX_CHOICES}"))
    if features.HasField("asked_tokens") and not 1 <= features.asked_tokens < MAX_TOKENS:
        wrong.append(Violation(f"{path}.features.asked_tokens", "must be at least 1 and less than 2^31"))
    return wrong


def _ask(subject: wire.Subject, text: str | None) -> Ask:
    features = subject.features
    return Ask(
        model=subject.model,
        prompt=text or "",
        prompt_tokens=subject.prompt_tokens if subject.HasField("prompt_tokens") else None,
        max_tokens=features.max_tokens if features.HasField("max_tokens") else None,
        choices=max(1, features.choices),
        effort=features.effort,
        tools=features.tools,
        asked_tokens=features.asked_tokens if features.HasField("asked_tokens") else None,
    )
