"""What the sidecar says when it or the engine cannot answer."""

import asyncio
import json

import pytest

CHAT = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]}).encode()
REASON = "x-sagesched-reason"


def error_of(reply):
    return json.loads(reply.body)["error"]


async def test_an_engine_that_is_gone_is_503_with_a_reason(start, client, fakes):
    engine, sidecar = await start(lambda seen: fakes.Script([]))
    await engine.stop()
    for target in ("/v1/chat/completions", "/v1/embeddings"):
        reply = await client.ask(sidecar, "POST", target, CHAT)
        assert (reply.status, reply.header(REASON)) == (503, "engine-unreachable")
        assert set(error_of(reply)) == {"message", "type", "param", "code"}
        assert reply.header("retry-after") == "1"
    assert sidecar.gate.snapshot().running == 0


async def test_anthropics_shape_on_messages(start, client, fakes):
    engine, sidecar = await start(lambda seen: fakes.Script([]))
    await engine.stop()
    reply = await client.ask(sidecar, "POST", "/v1/messages", CHAT)
    document = json.loads(reply.body)
    assert (reply.status, document["type"], document["error"]["type"]) == (503, "error", "overloaded_error")


@pytest.mark.parametrize("end", ["close", "reset"])
@pytest.mark.parametrize("pieces", [[], [b"HTTP/1.1 200 OK\r\nContent-"]])
async def test_a_cut_before_the_answer_is_502(start, client, fakes, pieces, end):
    _, sidecar = await start(lambda seen: fakes.Script(pieces, end))
    reply = await client.ask(sidecar, "POST", "/v1/chat/completions", CHAT)
    assert (reply.status, reply.header(REASON)) == (502, "engine-cut")
    assert sidecar.gate.snapshot().running == 0


async def test_an_answer_that_is_no_http_is_502(start, client, fakes):
    _, sidecar = await start(lambda seen: fakes.Script([b"SSH-2.0-x\r\n\r\n"]))
    reply = await client.ask(sidecar, "POST", "/v1/completions", CHAT)
    assert (reply.status, reply.header(REASON)) == (502, "engine-bad-answer")


@pytest.mark.parametrize(
    "framing", [b"Content-Length: 100\r\n\r\nabcdef", b"Transfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n"]
)
@pytest.mark.parametrize("target", ["/v1/chat/completions", "/v1/models"])
async def test_a_cut_answer_reads_as_cut_and_loses_no_byte(start, client, fakes, target, framing):
    _, sidecar = await start(lambda seen: fakes.Script([b"HTTP/1.1 200 OK\r\n" + framing]))
    reply = await client.ask(sidecar, "POST", target, CHAT)
    assert (reply.cut, reply.body) == (True, b"abcdef")
    assert sidecar.gate.snapshot().running == 0
    assert len(sidecar.gate.ranking.predictor.window) == 0


async def test_a_reset_is_a_cut_where_the_answer_ends_with_the_connection(start, client, fakes):
    go_on = asyncio.Event()
    pieces = [b"HTTP/1.1 200 OK\r\n\r\nabc", b"def"]
    _, sidecar = await start(lambda seen: fakes.Script(pieces, "reset", between=go_on))
    reader, writer = await asyncio.open_connection(*sidecar.address)
    writer.write(client.request_bytes("GET", "/x"))
    await reader.readuntil(b"abc")
    go_on.set()
    async with asyncio.timeout(5):
        rest = await reader.read()
    writer.close()
    assert b"0\r\n\r\n" not in rest


async def test_a_cut_answer_is_a_reset_for_an_http_1_0_client(start, fakes):
    _, sidecar = await start(lambda seen: fakes.Script([b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc"]))
    reader, writer = await asyncio.open_connection(*sidecar.address)
    writer.write(b"GET /x HTTP/1.0\r\n\r\n")
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()


@pytest.mark.parametrize("fields", [[], ["Transfer-Encoding: chunked"]])
async def test_a_body_beyond_the_bound_is_413(start, client, fakes, fields):
    engine, sidecar = await start(lambda seen: fakes.Script([]), {"server": {"maxBodyBytes": 2000}})
    if fields:
        reader, writer = await asyncio.open_connection(*sidecar.address)
        head = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(head + b"800\r\n" + b"x" * 2048 + b"\r\n0\r\n\r\n")
        reply = await client.read_reply(reader)
        writer.close()
    else:
        reply = await client.ask(sidecar, "POST", "/v1/completions", b"x" * 2001)
    assert (reply.status, reply.header(REASON)) == (413, "body-too-large")
    assert error_of(reply)["code"] == "body-too-large"
    assert engine.seen == []


async def test_a_full_queue_is_429_with_retry_after(start, client, fakes):
    engine, sidecar = await start(
        lambda seen: fakes.Script([], "hang"), {"engine": {"slots": 1}, "queue": {"maxRequests": 1}}
    )
    open_ones = [asyncio.ensure_future(client.ask(sidecar, "POST", "/v1/completions", CHAT)) for _ in range(2)]
    async with asyncio.timeout(5):
        while sidecar.gate.snapshot().waiting < 1 or not engine.seen:
            await asyncio.sleep(0.001)
    reply = await client.ask(sidecar, "POST", "/v1/completions", CHAT)
    assert (reply.status, reply.header(REASON)) == (429, "queue-full")
    assert int(reply.header("retry-after")) >= 1
    assert error_of(reply)["type"] == "rate_limit_error"
    for task in open_ones:
        task.cancel()
    await asyncio.gather(*open_ones, return_exceptions=True)


@pytest.mark.parametrize(
    "payload", [b"{", b"[1]", b'"x"', b"\xff", b'{"messages": 3, "stream": [], "n": "x"}', b"", b'{"a": NaN}']
)
async def test_what_does_not_decode_is_the_engines_to_answer(start, client, fakes, payload):
    said = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 9\r\n\r\nsome text"
    engine, sidecar = await start(lambda seen: fakes.Script([said]))
    reply = await client.ask(sidecar, "POST", "/v1/chat/completions", payload)
    assert (reply.status, reply.reason, reply.body) == (400, "Bad Request", b"some text")
    assert engine.seen[0].body == payload
    assert sidecar.gate.snapshot().running == 0


class BrokenEmbedder:
    name = "broken"
    dimensions = 4
    blocking = False

    def embed(self, text):
        raise RuntimeError("no")


async def test_a_broken_embedder_costs_no_request(start, client, fakes):
    said = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    _, sidecar = await start(lambda seen: fakes.Script([said]), embedder=BrokenEmbedder())
    assert (await client.ask(sidecar, "POST", "/v1/completions", CHAT)).body == b"ok"
    metrics = (await client.ask(sidecar, "GET", "/metrics")).body.decode()
    assert 'sagesched_fallback_total{reason="embedder-error"} 1.0' in metrics
