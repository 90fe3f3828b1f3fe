"""Give a request body one member, or a member another value, and change no other byte of it."""

import re
from typing import Any

import msgspec

MAX_SCANNED_BYTES = 1 << 18
"""Scanning takes about 0.1 s a megabyte, in which no other stream moves."""

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[{}\[\],:]', re.DOTALL)


def with_member(
    raw: bytes, document: dict[str, Any], name: str, value: Any, *, may_repeat: bool = False
) -> bytes | None:
    """A valid JSON object's bytes with one member set; `document` is what they decode to.

    Where the object has no such member it is inserted first; else the value alone is written anew, of repeated ones
    the last, which is the one that counts. None where the member cannot be found, and where looking for it would take
    too long; `may_repeat`: then it is written once more, last.
    """
    written = msgspec.json.encode(value)
    if name not in document:
        opening = raw.index(b"{") + 1
        rest = raw[opening:]
        return b"".join((raw[:opening], b'"%s":' % name.encode(), written, b"," if document else b"", rest))
    span = _last_value_span(raw, name) if len(raw) <= MAX_SCANNED_BYTES else None
    if span is not None:
        return raw[: span[0]] + written + raw[span[1] :]
    closing = raw.rindex(b"}")
    return b"".join((raw[:closing], b',"%s":' % name.encode(), written, raw[closing:])) if may_repeat else None


def with_usage(raw: bytes, document: dict[str, Any]) -> bytes | None:
    """The body with `stream_options.include_usage` true; None as for `with_member`: the answer's tokens are then
    counted by its events. Continuous usage, which had no effect without include_usage, stays off."""
    options = (document.get("stream_options") or {}) | {"include_usage": True}
    if "continuous_usage_stats" in options:
        options["continuous_usage_stats"] = False
    return with_member(raw, document, "stream_options", options)


def _last_value_span(raw: bytes, member: str) -> tuple[int, int] | None:
    """Where the value of a member of the outermost object lies, the last one if it is repeated."""
    depth = 0
    key: bytes | None = None
    begin: int | None = None
    found: tuple[int, int] | None = None
    for token in _TOKEN.finditer(raw):
        kind = token[0][:1]
        if kind in b"}],":
            depth -= kind != b","
            if begin is not None and depth == (kind == b","):
                found, begin = _trimmed(raw, begin, token.start()), None
        elif kind in b"{[":
            depth += 1
        elif depth == 1 and kind == b'"':
            key = token[0]
        elif depth == 1 and kind == b":" and key is not None and msgspec.json.decode(key) == member:
            begin = token.end()
        if kind == b"," and depth == 1:
            key = None
    return found


def _trimmed(raw: bytes, begin: int, end: int) -> tuple[int, int]:
    value = raw[begin:end]
    return begin + len(value) - len(value.lstrip()), end - len(value) + len(value.rstrip())
