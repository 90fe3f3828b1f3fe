"""What the engine is told of a request's place, and what of that a client may say itself: nothing (docs/modes.md).

The place goes into the body where the API takes it there, else into the header X-Vllm-Priority, which the engine puts
above the body. Every other byte of the body stays as it is.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from sagesched.hint import PREFIX, Hint, encode
from sagesched_sidecar.body_edit import with_member
from sagesched_sidecar.headers import PRIORITY
from sagesched_sidecar.surfaces import Document

_PRIORITY = "priority"
_EXTRAS = "vllm_xargs"


class Told(NamedTuple):
    """A body for the engine, and the priority header that goes with it, if any."""

    body: bytes
    priority: int | None = None


class Claim(NamedTuple):
    """A place in the engine that a client asked for itself."""

    how: str
    """`body`, `header` or `hint`."""
    said: str


def claims(document: Document | None, headers: Mapping[str, str]) -> list[Claim]:
    """What a client says of its place by itself. `headers`: names in any case."""
    found: list[Claim] = []
    said = headers.get(PRIORITY)
    if said is not None:
        found.append(Claim("header", said))
    if document is None:
        return found
    if _counts(document.get(_PRIORITY)):
        found.append(Claim("body", str(document[_PRIORITY])))
    if hinted := _own_members(document):
        found.append(Claim("hint", " ".join(sorted(hinted))))
    return found


def levelled(raw: bytes, document: Document, priority: int) -> bytes:
    """The body of a client that claimed a place: its class's is what it has."""
    if _own_members(document):
        raw = _with(raw, document, _EXTRAS, _foreign(document))
    return _with(raw, document, _PRIORITY, priority) if _counts(document.get(_PRIORITY)) else raw


def placed(raw: bytes, document: Document | None, *, in_body: bool, priority: int, hint: Hint | None) -> Told:
    """The body with the place that the ranking gave. `document`: what it decodes to, None where that is not known;
    `in_body`: whether the API takes the members at all."""
    if document is None or not in_body:
        return Told(raw, priority)
    extras = document.get(_EXTRAS)
    if isinstance(extras, dict | None) and (hint is not None or _own_members(document)):
        raw = _with(raw, document, _EXTRAS, _foreign(document) | (encode(hint) if hint else {}))
        document = {_EXTRAS: extras, **document}
    if document.get(_PRIORITY) is not None and not _counts(document[_PRIORITY]):
        return Told(raw, priority)  # no number: the engine's to refuse
    return Told(_with(raw, document, _PRIORITY, priority))


def _with(raw: bytes, document: Document, name: str, value: Any) -> bytes:
    edited = with_member(raw, document, name, value, may_repeat=True)
    assert edited is not None, "a member that may be repeated can always be written"
    return edited


def _own_members(document: Document) -> list[str]:
    """Members of vllm_xargs that only the sidecar may write."""
    extras = document.get(_EXTRAS)
    return [name for name in extras if name.startswith(PREFIX)] if isinstance(extras, dict) else []


def _foreign(document: Document) -> dict[str, Any]:
    """The client's own members of vllm_xargs."""
    return {name: value for name, value in (document.get(_EXTRAS) or {}).items() if not name.startswith(PREFIX)}


def _counts(value: object) -> bool:
    """Whether the engine may read this as a priority: it takes numbers in quotation marks too."""
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return False
        return True
    return isinstance(value, bool | int | float)
