"""Random answers and bodies, broken at random, through everything that reads them: one seed, one case, one verdict."""

import json
import random
import re
from typing import Any

from sagesched_sidecar.events import EventCutter, event_data
from sagesched_sidecar.meter import Meter, decoded
from sagesched_sidecar.streams import HELD_BYTES, FullBody, Passage, StrippedEvents, Untouched, WatchedEvents
from sagesched_sidecar.surfaces import SURFACES, Surface

PATHS = tuple(SURFACES)
ENDS = (b"\n\n", b"\n\n", b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n", b"\n")
EVENTS = (
    b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"w"},"finish_reason":null}]}',
    b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":7}}',
    b'data: {"usage":{"completion_tokens":9},"choices" : [ ] }',
    b'data: {"choices":[{"delta":{},"finish_reason":"length"}],"usage":{"completion_tokens":9}}',
    b'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}',
    b'data: {"choices":[],"usage":null}',
    b'data: {"choices":[],\ndata: "usage":{"completion_tokens":1}}',
    b'data: {"text":"\\"usage\\":{ \\"choices\\":[]"}',
    b'data: {"error":{"message":"x"}}',
    b"data: [DONE]",
    b"data: \xff\xfe\x80",
    b": ping",
    b"id: 7\nretry: 3",
    b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"w"}}',
    b'event: message_start\ndata: {"type":"message_start","message":{"usage":{"input_tokens":4,"output_tokens":1}}}',
    b'event: message_delta\ndata: {"type":"message_delta","delta":{"stop_reason":"max_tokens"},'
    b'"usage":{"output_tokens":5}}',
    b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta","delta":"w"}',
    b'event: response.completed\ndata: {"type":"response.completed","response":{"status":"completed",'
    b'"incomplete_details":null,"usage":{"input_tokens":3,"output_tokens":8}}}',
    b'event: response.incomplete\ndata: {"response":{"status":"incomplete","incomplete_details":{"reason":"x"}}}',
    b"",
)
LONG_EVENTS = (
    b'data: {"choices":[],"usage":{"completion_tokens":1},"pad":"' + b"x" * (HELD_BYTES - 58) + b'"}',
    b'data: {"choices":[],"usage":{"completion_tokens":1},"pad":"' + b"x" * HELD_BYTES + b'"}',
    b'data: {"choices":[{"delta":{"content":"' + b"y" * HELD_BYTES + b'"}}],"usage":{"completion_tokens":1}}',
)
SPLICES = (
    b"\r",
    b"\n",
    b"\r\n",
    b"\n\n",
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\0",
    b"\xff",
    b"data:",
    b" ",
)
A_CHOICE = re.compile(rb'"choices"\s*:\s*\[\s*[^\]\s]')
"""An event that shows one anywhere, be it in a comment, passes at once, and so it stays."""
VALUES: tuple[Any, ...] = (None, True, False, 0, -1, 7, 2**40, 1.5, "", "x", "length", "\ud800", [], [1], {}, {"a": 1})
NAMES = (
    *("model", "messages", "prompt", "input", "instructions", "system", "content", "text", "stream", "stream_options"),
    *("include_usage", "continuous_usage_stats", "n", "max_tokens", "max_completion_tokens", "max_output_tokens"),
    *("tools", "tool_choice", "reasoning", "reasoning_effort", "effort", "thinking", "type", "output_config", "usage"),
    *("choices", "finish_reason", "delta", "stop_reason", "message", "response", "status", "error", "output"),
    *("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens", "incomplete_details", "response_format"),
)


def check(seed: int) -> None:
    """One case. Raises AssertionError, or whatever was raised, where something is wrong."""
    rng = random.Random(seed)
    surface = SURFACES[rng.choice(PATHS)]
    if rng.random() < 0.7:
        _check_stream(rng, surface, mutated(rng, stream(rng)))
    else:
        raw = json.dumps(document(rng, 3), separators=rng.choice([(",", ":"), (", ", ": ")])).encode()
        _check_body(rng, surface, mutated(rng, raw) if rng.random() < 0.5 else raw)


def stream(rng: random.Random) -> bytes:
    """An event stream, well formed but for its last event."""
    parts: list[bytes] = []
    for _ in range(rng.randrange(7)):
        parts.append(rng.choice(LONG_EVENTS if rng.random() < 0.002 else EVENTS))
        parts.append(rng.choice(ENDS))
    return b"".join(parts)


def document(rng: random.Random, depth: int) -> dict[str, Any]:
    """An object whose members have names that are read, and values of any kind."""
    made: dict[str, Any] = {}
    for _ in range(rng.randrange(6)):
        made[rng.choice(NAMES)] = value(rng, depth - 1)
    return made


def value(rng: random.Random, depth: int) -> Any:
    kind = rng.random()
    if depth <= 0 or kind < 0.5:
        return rng.choice(VALUES)
    if kind < 0.8:
        return document(rng, depth)
    return [value(rng, depth - 1) for _ in range(rng.randrange(3))]


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Up to four bytes or pieces flipped, taken out, put in, doubled or cut off; a third stays as it is."""
    if rng.random() < 0.33:
        return data
    out = bytearray(data)
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(out))
        how = rng.randrange(6)
        if how == 0 and at < len(out):
            out[at] = rng.randrange(256)
        elif how == 1:
            del out[at : at + rng.randint(1, 12)]
        elif how == 2:
            out[at:at] = rng.choice(SPLICES)
        elif how == 3:
            out[at:at] = out[max(0, at - rng.randint(1, 60)) : at]
        elif how == 4:
            out[at:at] = rng.choice(EVENTS)
        elif rng.random() < 0.2:
            del out[at:]
    return bytes(out)


def pieces(rng: random.Random, data: bytes) -> list[bytes]:
    """The data in random reads, none empty: none at all, few, many, or byte by byte."""
    most = rng.choice((1, 2, 3, 5, 8, 16, len(data) if len(data) < 200 else 16))
    cuts = sorted({rng.randint(0, len(data)) for _ in range(most)})
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b]


def through(passage: Passage, reads: list[bytes]) -> bytes:
    """What comes out of a passage, read by read and at the end."""
    out = [passage.feed(read) for read in reads]
    out.append(passage.close())
    return b"".join(out)


def said(meter: Meter) -> tuple[object, ...]:
    """What a meter has read. How many events it counted is left out: a mark that is cut between reads is missed."""
    return meter.usage, meter.cut, meter.failed


def _check_stream(rng: random.Random, surface: Surface, data: bytes) -> None:
    kind = rng.choice((StrippedEvents, StrippedEvents, WatchedEvents))
    cut, uncut = Meter(surface, 2), Meter(surface, 2)
    out, expected = through(kind(cut), pieces(rng, data)), through(kind(uncut), [data] if data else [])
    assert out == expected, "what comes out depends on the reads"
    assert said(cut) == said(uncut), "what is read depends on the reads"
    assert cut.generated_tokens >= 0
    if kind is WatchedEvents:
        assert out == data, "a watched stream is changed"
    else:
        assert out == without_usage(data), "more or less than the usage event is missing"


def without_usage(data: bytes) -> bytes:
    """The plain definition, on the whole stream."""
    cutter = EventCutter()
    events = [*cutter.feed(data), bytes(cutter.pending)]
    return b"".join(e[: len(e) - len(e.lstrip(b"\r\n"))] if _is_usage(e) else e for e in events)


def _is_usage(event: bytes) -> bool:
    found = decoded(event_data(event))
    return (
        isinstance(found, dict)
        and b'"usage"' in event
        and found.get("choices") == []
        and isinstance(found.get("usage"), dict)
        and len(event.strip(b"\r\n")) <= HELD_BYTES
        and not A_CHOICE.search(event)
    )


def _check_body(rng: random.Random, surface: Surface, data: bytes) -> None:
    reads = pieces(rng, data)
    cut, uncut = Meter(surface, 1), Meter(surface, 1)
    assert through(FullBody(cut), reads) == through(Untouched(), reads) == data
    through(FullBody(uncut), [data] if data else [])
    assert said(cut) == said(uncut)
    found = decoded(data)
    if not isinstance(found, dict):
        return
    ask = surface.ask(found)
    assert ask.choices >= 1
    assert ask.prompt_tokens is None or ask.prompt_tokens >= 0
    edited = surface.asking_for_usage(data, found)
    if edited is not None:
        _check_edit(found, edited)


def _check_edit(found: dict[str, Any], edited: bytes) -> None:
    again = decoded(edited)
    assert isinstance(again, dict), "an edited body is a JSON object"
    assert again["stream_options"]["include_usage"] is True
    rest = [{name: v for name, v in one.items() if name != "stream_options"} for one in (found, again)]
    assert rest[0] == rest[1], "another member was changed"
