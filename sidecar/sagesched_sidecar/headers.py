"""Which headers differ between the two sides, and nothing else (docs/headers.md is this table in words)."""

from collections.abc import Iterable
from typing import Literal, NamedTuple

from multidict import CIMultiDict

HOP_BY_HOP = frozenset(
    {"connection", "proxy-connection", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
)
"""Fields about one connection (RFC 9110 7.6.1); fields that Connection names go too."""

REQUEST_ID = "X-Request-Id"
EXPLAIN_ID = "x-sagesched-request-id"
DROPPED_REASON = "x-llm-d-request-dropped-reason"
"""llm-d's vocabulary: why flow control did not serve a request."""
REASON = "x-sagesched-reason"
"""Our own: why the sidecar itself answered."""
PRIORITY = "X-Vllm-Priority"
CLASS = "x-sagesched-class"


class Difference(NamedTuple):
    """One header that the other side does not see as it was sent."""

    direction: Literal["request", "response"]
    name: str
    change: str


DIFFERENCES: tuple[Difference, ...] = (
    *(Difference("request", name, "removed: about one connection") for name in sorted(HOP_BY_HOP)),
    Difference("request", "host", "set to the engine's"),
    Difference("request", "expect", "removed: the sidecar answers 100 Continue itself"),
    Difference(
        "request", "content-length", "recomputed on scheduled paths; 0 is added where a method has a body and none came"
    ),
    Difference("request", "accept-encoding", "set to identity on scheduled paths"),
    Difference("request", "(repeated)", "a repeated field is spelt as its first one"),
    Difference("request", "authorization", "replaced where the settings name an API key"),
    Difference("request", "x-request-id", "added on scheduled paths when absent"),
    Difference("request", "x-vllm-priority", "removed; set where the engine orders and the body cannot say it"),
    *(Difference("response", name, "removed: about one connection") for name in sorted(HOP_BY_HOP)),
    Difference("response", "content-length", "removed where a usage event may be taken out; never on 1xx and 204"),
    Difference("response", "date", "added when absent (RFC 9110 6.6.1)"),
    Difference("response", "x-accel-buffering", "set to no on event streams"),
    Difference("response", EXPLAIN_ID, "added on scheduled paths"),
)


RawFields = Iterable[tuple[bytes, bytes]]
"""Fields as they were on the wire; parsed ones have lost their case."""


def _text(fields: RawFields) -> list[tuple[str, str]]:
    return [(name.decode("ascii", "replace"), value.decode("utf-8", "surrogateescape")) for name, value in fields]


def _listed(headers: Iterable[tuple[str, str]]) -> frozenset[str]:
    """The lower-case field names that Connection lists."""
    return frozenset(
        token.strip().lower() for name, value in headers if name.lower() == "connection" for token in value.split(",")
    )


def end_to_end(fields: RawFields, *, also_without: frozenset[str] = frozenset()) -> CIMultiDict[str]:
    """The fields that travel on, in order, with their case and repetitions."""
    pairs = _text(fields)
    gone = HOP_BY_HOP | _listed(pairs) | also_without
    return CIMultiDict([(name, value) for name, value in pairs if name.lower() not in gone])


_REQUEST_GONE = frozenset({"host", "expect"})
_PRIORITY_GONE = frozenset({PRIORITY.lower()})
_SCHEDULED_GONE = _REQUEST_GONE | {"content-length", "accept-encoding"}


def to_engine(
    fields: RawFields,
    *,
    api_key: str | None,
    request_id: str | None = None,
    priority: int | None = None,
    levels: bool = True,
) -> CIMultiDict[str]:
    """Request headers for the engine; a request id marks a scheduled request. `levels`: whether the client's own
    priority is taken out."""
    scheduled = request_id is not None
    gone = (_SCHEDULED_GONE if scheduled else _REQUEST_GONE) | (_PRIORITY_GONE if levels else frozenset())
    result = end_to_end(fields, also_without=gone | {"authorization"} if api_key else gone)
    result = _one_case(result)
    if api_key:
        result["Authorization"] = f"Bearer {api_key}"
    if priority is not None:
        result[PRIORITY] = str(priority)
    if request_id is not None:
        result["Accept-Encoding"] = "identity"
        result.setdefault(REQUEST_ID, request_id)
    return result


def _one_case(headers: CIMultiDict[str]) -> CIMultiDict[str]:
    """Repetitions of a field spelt as its first one: aiohttp's client would take another case for a replacement."""
    spelt: dict[str, str] = {}
    return CIMultiDict([(spelt.setdefault(name.lower(), name), value) for name, value in headers.items()])


def to_client(fields: RawFields, *, streams: bool, stripped: bool, explain_id: str | None) -> CIMultiDict[str]:
    """Response headers for the client."""
    result = end_to_end(fields, also_without=frozenset({"content-length"}) if stripped else frozenset())
    if streams:
        result["X-Accel-Buffering"] = "no"
    if explain_id is not None:
        result[EXPLAIN_ID] = explain_id
    return result
