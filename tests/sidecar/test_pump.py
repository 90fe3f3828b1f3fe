"""The quick way of an answer's bytes: taken, bounded, and telling of trouble."""

import asyncio
import json

import pytest

from sagesched_sidecar import pump, streams
from sagesched_sidecar.admission import Visit

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
WORD = b'data: {"choices":[{"index":0,"delta":{"content":"w"},"finish_reason":null}]}\n\n'
LIMIT_S = 20.0


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def body():
    return json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "hello"}]}).encode()


async def until(condition):
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.005)


@pytest.fixture
def pumped(monkeypatch):
    """What went the quick way, piece by piece."""
    pieces = []
    write = pump._write

    def noted(writer, data):
        pieces.append(data)
        write(writer, data)

    monkeypatch.setattr(pump, "_write", noted)
    return pieces


async def test_events_after_the_first_take_the_quick_way(start, client, fakes, pumped):
    words = [chunk(WORD) for _ in range(30)]
    _, sidecar = await start(lambda seen: fakes.Script([HEAD, *words, b"0\r\n\r\n"], "close", pause_s=0.002))
    reply = await client.ask(sidecar, "POST", "/v1/chat/completions", body())
    assert reply.body == WORD * 30
    assert not reply.cut
    assert len(pumped) >= 20
    assert set(pumped) <= {WORD, WORD * 2, WORD * 3}


async def test_a_client_that_does_not_read_stops_the_engine_and_costs_bounded_memory(start, client, fakes):
    events = [b": %d " % number + b"x" * 65_500 + b"\n\n" for number in range(1500)]
    pieces = [HEAD, *map(chunk, events), b"0\r\n\r\n"]
    engine, sidecar = await start(lambda seen: fakes.Script(pieces, "close"))
    reader, writer = await asyncio.open_connection(*sidecar.address, limit=4096)
    writer.write(client.request_bytes("POST", "/v1/chat/completions", body()))
    seen = await engine.request(0)
    before = -1
    while before != len(seen.written):  # until it stands still
        before = len(seen.written)
        await asyncio.sleep(0.3)
    assert len(seen.written) < 0.5 * sum(map(len, pieces)), "the engine was held back"
    async with asyncio.timeout(LIMIT_S):
        reply = await client.read_reply(reader)
    assert reply.body == b"".join(events), "and all of it came in the end, in order"
    writer.close()


async def test_a_cut_in_the_middle_of_the_quick_way_is_a_cut(start, client, fakes, pumped):
    words = [chunk(WORD) for _ in range(10)]
    _, sidecar = await start(lambda seen: fakes.Script([HEAD, *words], "reset", pause_s=0.005))
    reply = await client.ask(sidecar, "POST", "/v1/chat/completions", body())
    assert reply.cut
    assert reply.body == WORD * 10
    assert pumped
    await until(lambda: sidecar.gate.snapshot().running == 0)


async def test_trouble_while_reading_ends_the_exchange_and_frees_the_place(start, client, fakes, monkeypatch):
    fed = []

    def feed(self, data):
        fed.append(data)
        if len(fed) > 3:
            raise RuntimeError("a defect")
        return data

    monkeypatch.setattr(streams.StrippedEvents, "feed", feed)
    words = [chunk(WORD) for _ in range(50)]
    engine, sidecar = await start(lambda seen: fakes.Script([HEAD, *words], "hang", pause_s=0.002))
    reply = await client.ask(sidecar, "POST", "/v1/chat/completions", body())
    assert reply.cut
    await until(lambda: sidecar.gate.snapshot().running == 0)
    await until(engine.seen[0].closed.is_set)


WHOLE = b'{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":2,"completion_tokens":3}}'


@pytest.mark.parametrize(
    ("pieces", "meanwhile"),
    [
        ([b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(WHOLE) + WHOLE], 0),
        ([HEAD + chunk(WORD), chunk(WORD), b"0\r\n\r\n"], 1),
    ],
)
async def test_only_while_more_is_to_come_there_is_time_to_predict(
    start, client, fakes, monkeypatch, pieces, meanwhile
):
    begun, begin = [], Visit.begun
    monkeypatch.setattr(Visit, "begun", lambda visit: (begun.append(visit), begin(visit)))
    _, sidecar = await start(lambda seen: fakes.Script(pieces, "close", pause_s=0.02))
    await client.ask(sidecar, "POST", "/v1/chat/completions", body())
    await until(lambda: sidecar.gate.snapshot().running == 0)
    assert len(begun) == meanwhile
    assert len(sidecar.gate.ranking.predictor.window) == 1, "and learnt from either way"
