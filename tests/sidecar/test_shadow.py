"""Shadow mode changes nothing that either side sees."""

import asyncio
import json

import pytest

SETTINGS = {"engine": {"mode": "shadow", "slots": 2}, "queue": {"maxRequests": 1}}
BODY = json.dumps({"prompt": "hello", "stream": True, "priority": -5, "vllm_xargs": {"sagesched_v": 7}}).encode()
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Own: 1\r\nContent-Length: 14\r\n\r\ndata: [DONE]\n\n"


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages"])
async def test_the_engine_sees_what_the_client_sent(start, client, fakes, path):
    engine, sidecar = await start(lambda seen: fakes.Script([ANSWER]), SETTINGS)
    fields = ["Accept-Encoding: gzip", "X-Vllm-Priority: -9", "X-Custom: 1"]
    reply = await client.ask(sidecar, "POST", path, BODY, *fields)
    seen = engine.seen[0]
    assert seen.body == BODY
    own = ("host", "content-length", "connection")
    assert [f"{name}: {value}" for name, value in seen.headers if name.lower() not in own] == fields
    assert (reply.body, reply.header("x-own")) == (b"data: [DONE]\n\n", "1")
    assert reply.header("x-sagesched-request-id") is None


async def test_a_chunked_body_goes_on_as_it_comes(start, client, fakes):
    engine, sidecar = await start(lambda seen: fakes.Script([ANSWER]), SETTINGS)
    reader, writer = await asyncio.open_connection(*sidecar.address)
    writer.write(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
    for piece in (BODY[:9], BODY[9:]):
        writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
        await asyncio.sleep(0.01)
    writer.write(b"0\r\n\r\n")
    assert (await client.read_reply(reader)).status == 200
    writer.close()
    assert engine.seen[0].body == BODY


async def test_nothing_is_refused_however_much_there_is(start, client, fakes):
    holds = asyncio.Event()
    small = SETTINGS | {"server": {"maxBodyBytes": 1024}}
    engine, sidecar = await start(lambda seen: fakes.Script([ANSWER], gate=holds), small)
    bodies = [b'{"prompt": "%s"}' % (b"x" * 5000), *[BODY] * 6]
    asked = [asyncio.create_task(client.ask(sidecar, "POST", "/v1/completions", body)) for body in bodies]
    while len(engine.seen) < 7:
        await asyncio.sleep(0.01)
    while sidecar.gate.snapshot().running < 6:  # they are looked at a moment after they were sent
        await asyncio.sleep(0.01)
    holds.set()
    assert {reply.status for reply in await asyncio.gather(*asked)} == {200}
    assert sorted(seen.body for seen in engine.seen) == sorted(bodies)


async def test_a_client_that_leaves_and_an_engine_that_is_gone_leave_nothing_behind(start, client, fakes):
    engine, sidecar = await start(lambda seen: fakes.Script([], end="hang"), SETTINGS)
    leaving = asyncio.create_task(client.ask(sidecar, "POST", "/v1/completions", BODY))
    seen = await engine.request(0)
    while not sidecar.gate.snapshot().running:
        await asyncio.sleep(0.01)
    leaving.cancel()
    await seen.closed.wait()
    while sidecar.gate.snapshot().running:
        await asyncio.sleep(0.01)
    await engine.stop()
    assert (await client.ask(sidecar, "POST", "/v1/completions", BODY)).status == 503
    assert sidecar.gate.ranking.tickets() == []


async def test_what_is_answered_is_learnt(start, client, fakes):
    body = b'{"usage": {"prompt_tokens": 3, "completion_tokens": 7}, "choices": [{"finish_reason": "stop"}]}'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    _, sidecar = await start(lambda seen: fakes.Script([head + body]), SETTINGS)
    await client.ask(sidecar, "POST", "/v1/completions", b'{"prompt": "hello"}')
    while len(sidecar.gate.ranking.predictor.window) < 1:
        await asyncio.sleep(0.01)
