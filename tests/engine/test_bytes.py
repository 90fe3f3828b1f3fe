"""The bytes that the engine's socket wrote against the bytes that the client read."""

import asyncio
import json
from typing import Any

import pytest
import raw_upstream as raw
from engine_asks import base
from real_engine import MODEL, RealEngine
from tee import Tee

from sagesched.engine_priority import class_priority

SAID = [{"role": "user", "content": "Count: äöü, 三, 🙂"}]
USAGE = {"stream_options": {"include_usage": True}}
CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
EXCHANGES: list[tuple[str, dict[str, Any]]] = [
    (CHAT, {"messages": SAID, "max_tokens": 24}),
    (CHAT, {"messages": SAID, "max_tokens": 24, "stream": True}),
    (CHAT, {"messages": SAID, "max_tokens": 24, "stream": True} | USAGE),
    (CHAT, {"messages": SAID, "max_tokens": 8, "n": 3, "stream": True, "temperature": 0.9, "seed": 7}),
    (CHAT, {"messages": SAID, "max_tokens": 8, "logprobs": True, "top_logprobs": 2, "stream": True}),
    (CHAT, {"messages": SAID, "max_tokens": "many"}),
    (CHAT, {"messages": SAID, "model": "another"}),
    (COMPLETIONS, {"prompt": "The sea", "max_tokens": 24}),
    (COMPLETIONS, {"prompt": ["The sea", "The sky"], "max_tokens": 12, "stream": True}),
    (COMPLETIONS, {"prompt": "The sea", "max_tokens": 24, "stream": True} | USAGE),
    (COMPLETIONS, {"prompt": [1, 2, 3], "max_tokens": 4, "priority": 3, "vllm_xargs": {"a": 1, "b": [1, 2]}}),
    (COMPLETIONS, {"prompt": "word " * 3000, "max_tokens": 4}),
    (RESPONSES, {"input": "The sea", "max_output_tokens": 12}),
    (RESPONSES, {"input": "The sea", "max_output_tokens": 12, "stream": True}),
    (MESSAGES, {"messages": SAID, "max_tokens": 12}),
    (MESSAGES, {"messages": SAID, "max_tokens": 12, "stream": True}),
    ("/tokenize", {"prompt": "The sea"}),
    ("/v1/embeddings", {"input": "The sea"}),
]


async def answer(url: str, path: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, header and body of one exchange over a raw socket of its own."""
    host, _, port = url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 26)
    fields = f"Host: x\r\nContent-Type: application/json\r\nX-Request-Id: same\r\nContent-Length: {len(body)}"
    writer.write(f"POST {path} HTTP/1.1\r\n{fields}\r\n\r\n".encode() + body)
    try:
        return await read_answer(reader)
    finally:
        writer.close()


async def read_answer(reader: asyncio.StreamReader) -> tuple[int, dict[str, str], bytes]:
    """See answer()."""
    line, *rest = (await reader.readuntil(b"\r\n\r\n"))[:-4].decode("latin-1").split("\r\n")
    header = {key.lower(): value.strip() for key, _, value in (field.partition(":") for field in rest)}
    if header.get("transfer-encoding") == "chunked":
        body = await raw.read_chunked(reader)
    else:
        body = await reader.readexactly(int(header["content-length"]))
    return int(line.split()[1]), header, body


async def written(tee: Tee, path: str) -> tuple[int, dict[str, str], bytes]:
    """What the engine wrote in answer to the last request at that path."""
    found = [a for q, a in zip(tee.asked, tee.answers, strict=True) if q.startswith(f"POST {path} ".encode())]
    reader = asyncio.StreamReader(limit=1 << 26)
    reader.feed_data(bytes(found[-1]))
    reader.feed_eof()
    return await read_answer(reader)


def is_usage_event(event: bytes) -> bool:
    """Whether it is the event that include_usage adds: no choices, but usage."""
    if not event.startswith(b"data: {"):
        return False
    document = json.loads(event.removeprefix(b"data: "))
    return document.get("choices") == [] and isinstance(document.get("usage"), dict)


@pytest.mark.parametrize("number", range(len(EXCHANGES)))
async def test_no_byte_differs_but_the_usage_event_that_the_sidecar_asked_for(
    fcfs: RealEngine, before: Any, number: int
) -> None:
    path, more = EXCHANGES[number]
    body = json.dumps({"model": MODEL, "temperature": 0} | more).encode()
    async with Tee(fcfs.url) as tee:
        sidecar = await before(tee.url)
        status, header, read = await answer(base(sidecar), path, body)
        engine_status, engine_header, wrote = await written(tee, path)
        sent = next(bytes(q) for q in reversed(tee.asked) if q.startswith(f"POST {path} ".encode()))
    assert (status, header["content-type"]) == (engine_status, engine_header["content-type"])
    ours = more.get("stream") is True and path in (CHAT, COMPLETIONS) and "stream_options" not in more
    assert (b'"include_usage":true' in sent) == ours
    clamped = body.replace(b'"priority": 3', b'"priority": %d' % class_priority(0))
    assert ours or sent.endswith(b"\r\n\r\n" + clamped), "nothing else of what was asked is touched"
    events = wrote.split(b"\n\n")
    kept = [event for event in events if not (ours and is_usage_event(event))]
    assert len(events) - len(kept) == ours
    assert read == b"\n\n".join(kept)


async def test_a_greedy_answer_is_the_same_without_a_sidecar(fcfs: RealEngine, before: Any) -> None:
    sidecar = await before(fcfs.url)
    body = json.dumps({"model": MODEL, "temperature": 0, "prompt": "The sea", "max_tokens": 48}).encode()
    answers = [json.loads((await answer(url, COMPLETIONS, body))[2]) for url in (fcfs.url, base(sidecar))]
    for document in answers:
        del document["created"]
    assert answers[0] == answers[1]
