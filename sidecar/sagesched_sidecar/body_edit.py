"""Ask for a usage event in a request body and change no other byte of it."""

import re
from typing import Any

import msgspec

MAX_SCANNED_BYTES = 1 << 18
"""Scanning takes about 0.1 s a megabyte, in which no other stream moves."""

_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*+"|[{}\[\],:]', re.DOTALL)


def with_usage(raw: bytes, *, present: bool, options: dict[str, Any]) -> bytes | None:
    """A valid JSON object's bytes with `stream_options.include_usage` true.

    `present`: whether the object has stream_options; their decoded value is `options`. Without them a member is
    inserted first. With them their value alone is written anew, and continuous usage, which had no effect without
    include_usage, stays off. None where the member cannot be found, and where looking for it would take too long: the
    answer's tokens are then counted by its events.
    """
    if not present:
        opening = raw.index(b"{") + 1
        return raw[:opening] + b'"stream_options":{"include_usage":true},' + raw[opening:]
    span = _last_value_span(raw, "stream_options") if len(raw) <= MAX_SCANNED_BYTES else None
    if span is None:
        return None
    merged = options | {"include_usage": True}
    if "continuous_usage_stats" in merged:
        merged["continuous_usage_stats"] = False
    return raw[: span[0]] + msgspec.json.encode(merged) + raw[span[1] :]


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
