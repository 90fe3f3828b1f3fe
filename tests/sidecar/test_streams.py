"""Cutting streams into events, and taking the usage event out, whatever the reads."""

import json
import random

from hypothesis import given
from hypothesis import strategies as st

from sagesched_sidecar.events import EventCutter, event_data
from sagesched_sidecar.meter import Meter
from sagesched_sidecar.streams import HELD_BYTES, StrippedEvents, WatchedEvents
from sagesched_sidecar.surfaces import SURFACES, Usage

CHAT = SURFACES["/v1/chat/completions"]
USAGE = b'data: {"id":"x","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":7}}'
WORD = b'data: {"id":"x","choices":[{"index":0,"delta":{"content":"w"},"finish_reason":null}]}'
EVENTS = [
    WORD,
    USAGE,
    b'data: {"usage":{"completion_tokens":9},"choices" : [ ] }',
    b'data: {"choices":[{"delta":{},"finish_reason":"length"}],"usage":{"completion_tokens":9}}',
    b'data: {"choices":[],"usage":null}',
    b'data: {"choices":[],"prompt_filter_results":[]}',
    b": ping",
    b"event: x\ndata: not json",
    b"data: [DONE]",
    b"data: \xff\xfe\x80",
    b'data: {"choices":[],\ndata: "usage":{"completion_tokens":1}}',
    b'data: {"text":"\\"usage\\":{ \\"choices\\":[]"}',
    b'data: {"choices":[],"usage":{"completion_tokens":1},"pad":"' + b"x" * HELD_BYTES + b'"}',
    b'data: {"choices":[{"delta":{"content":"' + b"y" * (2 * HELD_BYTES) + b'"}}],"usage":{"completion_tokens":1}}',
    b"",
]
STREAMS = st.lists(
    st.tuples(st.sampled_from(EVENTS), st.sampled_from([b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n", b"\n"])), max_size=8
)


def pieces_of(stream, seed, most):
    """The stream in random reads; most of them near the ends of lines, where the cuts are that matter."""
    rng = random.Random(seed)
    ends = [at + d for at, byte in enumerate(stream) if byte in b"\r\n" for d in (0, 1)]
    cuts = sorted(
        {rng.choice(ends) if ends and rng.random() < 0.7 else rng.randint(0, len(stream)) for _ in range(most)}
    )
    return [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True) if a < b]


def through(passage, pieces):
    return b"".join([passage.feed(piece) for piece in pieces] + [passage.close()])


def is_usage(event):
    try:
        document = json.loads(event_data(event))
    except ValueError:
        return False
    small = len(event.strip(b"\r\n")) <= HELD_BYTES
    return (
        isinstance(document, dict)
        and document.get("choices") == []
        and isinstance(document.get("usage"), dict)
        and small
    )


def without_usage(stream):
    """The plain definition, on the whole stream."""
    cutter = EventCutter()
    events = [*cutter.feed(stream), bytes(cutter.pending)]
    return b"".join(e[: len(e) - len(e.lstrip(b"\r\n"))] if is_usage(e) else e for e in events)


@given(STREAMS, st.integers(), st.integers(0, 12), st.binary(max_size=20))
def test_what_comes_out_is_the_stream_without_its_usage_events_however_it_is_cut(parts, seed, most, tail):
    stream = b"".join(event + end for event, end in parts) + tail
    assert through(StrippedEvents(Meter(CHAT, 1)), pieces_of(stream, seed, most)) == without_usage(stream)


@given(STREAMS, st.integers(), st.integers(0, 12))
def test_a_watched_stream_is_passed_as_it_is_and_read_as_a_whole_one(parts, seed, most):
    stream = b"".join(event + end for event, end in parts)
    cut, whole = Meter(CHAT, 1), Meter(CHAT, 1)
    passage = WatchedEvents(cut)
    for piece in pieces_of(stream, seed, most):
        assert passage.feed(piece) == piece
    passage.close()
    through(WatchedEvents(whole), [stream] if stream else [])
    assert (cut.usage, cut.cut, cut.failed) == (whole.usage, whole.cut, whole.failed)


@given(
    st.lists(st.sampled_from([b"a", b"\r", b"\n", b"data: 1", b"\r\n"]), max_size=30), st.integers(), st.integers(0, 12)
)
def test_events_joined_are_the_stream_and_the_same_for_every_cut(parts, seed, most):
    stream = b"".join(parts)
    cutter = EventCutter()
    events = [event for piece in pieces_of(stream, seed, most) for event in cutter.feed(piece)]
    whole = EventCutter()
    assert b"".join(events) + cutter.pending == stream
    joined = [bytes(event) for event in whole.feed(stream)]
    texts = [event.strip(b"\r\n") for event in events if event.strip(b"\r\n")]
    assert texts == [event.strip(b"\r\n") for event in joined if event.strip(b"\r\n")]


@given(st.integers())
def test_an_event_that_cannot_be_the_usage_event_is_not_held(seed):
    event = WORD + b"\n\n"
    passage = StrippedEvents(Meter(CHAT, 1))
    known = event.index(b'"choices":[{') + len(b'"choices":[{')
    held, shown = event[:known], b""
    shown += passage.feed(held)
    assert shown == held
    for piece in pieces_of(event[known:], seed, 5):
        assert passage.feed(piece) == piece


def test_a_long_event_passes_while_it_comes():
    passage = StrippedEvents(Meter(CHAT, 1))
    sent = sum(len(passage.feed(b"data: " + b"x" * 100_000)) for _ in range(100))
    assert sent == 100 * 100_006
    assert passage.feed(b"\n\n") + passage.feed(USAGE + b"\n\n") == b"\n\n"


def test_usage_and_how_it_ended_are_read_from_a_stream():
    meter = Meter(CHAT, 2)
    end = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}'
    stream = b"\n\n".join([WORD, WORD, end, USAGE, b"data: [DONE]", b""])
    assert USAGE not in through(StrippedEvents(meter), [stream[:200], stream[200:]])
    assert meter.usage == Usage(3, 7)
    assert meter.cut is True
    assert meter.generated_tokens == 4
