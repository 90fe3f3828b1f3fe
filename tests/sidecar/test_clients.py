"""Real clients, many at once, and what HTTP/1.1 allows a client."""

import asyncio
import json

import anthropic
import openai

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"


def chunked(*events):
    return b"".join(b"%x\r\n%s\r\n" % (len(e), e) for e in events) + b"0\r\n\r\n"


def chat_event(choices, **more):
    document = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices, **more}
    return b"data: " + json.dumps(document).encode() + b"\n\n"


def chat_stream(words, with_usage=True):
    events = [chat_event([{"index": 0, "delta": {"content": w}, "finish_reason": None}]) for w in words]
    events.append(chat_event([{"index": 0, "delta": {}, "finish_reason": "stop"}]))
    usage = {"prompt_tokens": 3, "completion_tokens": len(words), "total_tokens": 3 + len(words)}
    return [HEAD, chunked(*events, *([chat_event([], usage=usage)] if with_usage else []), b"data: [DONE]\n\n")]


def base(sidecar):
    host, port = sidecar.address
    return f"http://{host}:{port}"


async def test_the_openai_client_streams_and_sees_usage_only_when_it_asks(start, fakes):
    engine, sidecar = await start(lambda seen: fakes.Script(chat_stream(["a", "b"], b"include_usage" in seen.body)))
    async with openai.AsyncOpenAI(base_url=base(sidecar) + "/v1", api_key="k") as client:
        messages = [{"role": "user", "content": "hello"}]
        plain = [c async for c in await client.chat.completions.create(model="m", messages=messages, stream=True)]
        asked = [
            c
            async for c in await client.chat.completions.create(
                model="m", messages=messages, stream=True, stream_options={"include_usage": True}
            )
        ]
    assert "".join(c.choices[0].delta.content or "" for c in plain) == "ab"
    assert (len(plain), len(asked)) == (3, 4)
    assert asked[-1].usage.completion_tokens == 2
    assert len(sidecar.gate.ranking.predictor.window) == 2
    assert json.loads(engine.seen[0].body)["stream_options"] == {"include_usage": True}


async def test_the_anthropic_client(start, fakes):
    message = {"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None,
               "usage": {"input_tokens": 3, "output_tokens": 1}}  # fmt: skip
    parts = [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    events = [f"event: {p['type']}\ndata: {json.dumps(p)}\n\n".encode() for p in parts]
    _, sidecar = await start(lambda seen: fakes.Script([HEAD, chunked(*events)]))
    async with anthropic.AsyncAnthropic(base_url=base(sidecar), api_key="k") as client:
        asked = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hello"}]}
        async with client.messages.stream(**asked) as stream:
            text = "".join([part async for part in stream.text_stream])
    window = sidecar.gate.ranking.predictor.window
    assert text == "hi"
    assert (window.output_tokens[0], bool(window.censored[0])) == (9, True)


async def test_two_hundred_streams_at_once(start, client, fakes):
    go = asyncio.Event()
    _, sidecar = await start(lambda seen: fakes.Script(chat_stream(["w"] * 20), between=go), {"engine": {"slots": 200}})
    body = json.dumps({"model": "m", "stream": True, "messages": []}).encode()
    asked = [asyncio.ensure_future(client.ask(sidecar, "POST", "/v1/chat/completions", body)) for _ in range(200)]
    async with asyncio.timeout(20):
        while sidecar.gate.snapshot().running < 200:
            await asyncio.sleep(0.005)
        go.set()
        replies = await asyncio.gather(*asked)
    assert {(r.status, r.cut, r.body.count(b"data:")) for r in replies} == {(200, False, 22)}
    assert sidecar.gate.snapshot().running == 0


async def test_an_event_is_sent_on_before_the_next_one_comes(start, client, fakes):
    more = asyncio.Event()
    first = chat_event([{"index": 0, "delta": {"content": "a"}, "finish_reason": None}])
    pieces = [HEAD + b"%x\r\n%s\r\n" % (len(first), first), b"0\r\n\r\n"]
    _, sidecar = await start(lambda seen: fakes.Script(pieces, between=more))
    reader, writer = await asyncio.open_connection(*sidecar.address)
    body = json.dumps({"model": "m", "stream": True, "messages": []}).encode()
    writer.write(client.request_bytes("POST", "/v1/chat/completions", body))
    async with asyncio.timeout(5):
        await reader.readuntil(first)
    assert not more.is_set()
    more.set()
    writer.close()


async def test_requests_in_a_row_on_one_connection(start, client, fakes):
    engine, sidecar = await start(lambda seen: fakes.Script([OK]))
    reader, writer = await asyncio.open_connection(*sidecar.address)
    body = json.dumps({"model": "m", "messages": []}).encode()
    one = client.request_bytes("POST", "/v1/chat/completions", body)
    for _ in range(3):
        writer.write(one)
        assert (await client.read_reply(reader)).body == b"{}"
    writer.write(one + client.request_bytes("GET", "/v1/models") + one)
    replies = [await client.read_reply(reader) for _ in range(3)]
    writer.close()
    assert [r.body for r in replies] == [b"{}"] * 3
    assert [seen.target for seen in engine.seen[3:]] == ["/v1/chat/completions", "/v1/models", "/v1/chat/completions"]


async def test_a_client_that_waits_for_100_continue(start, client, fakes):
    for target in ("/v1/chat/completions", "/v1/embeddings"):
        engine, sidecar = await start(lambda seen: fakes.Script([OK]))
        reader, writer = await asyncio.open_connection(*sidecar.address)
        head = f"POST {target} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
        writer.write(head.encode())
        async with asyncio.timeout(5):
            assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
            writer.write(b"{}")
            assert (await client.read_reply(reader)).status == 200
        writer.close()
        assert engine.seen[0].body == b"{}"
        assert engine.seen[0].header("expect") is None


async def test_an_http_1_0_client(start, client, fakes):
    _, sidecar = await start(lambda seen: fakes.Script(chat_stream(["a"], with_usage=False)))
    reader, writer = await asyncio.open_connection(*sidecar.address)
    body = b'{"stream": true, "messages": []}'
    writer.write(b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    async with asyncio.timeout(5):
        answer = await reader.read()
    writer.close()
    head, _, stream = answer.partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert stream.endswith(b"data: [DONE]\n\n")
    assert stream.count(b"data:") == 3


async def test_an_upload_streams_through(start, client, fakes):
    engine, sidecar = await start(lambda seen: fakes.Script([OK]))
    data = bytes(range(256)) * 8000
    reply = await client.ask(sidecar, "POST", "/v1/files", data)
    assert reply.body == b"{}"
    assert engine.seen[0].body == data
    assert engine.seen[0].header("content-length") == str(len(data))
