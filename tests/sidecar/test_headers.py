"""The headers on both sides differ by the listed set and nothing else."""

import json
from pathlib import Path

import pytest

from sagesched_sidecar.headers import DIFFERENCES

CHAT = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "hello"}]}).encode()
SENT = [
    "traceparent: 00-abc-def-01",
    "tracestate: a=b",
    "X-Custom: 1",
    "X-Custom: 2",
    "Cookie: a=b",
    "Authorization: Bearer client",
    "Accept-Encoding: gzip",
    "Connection: keep-alive, X-Hop",
    "X-Hop: gone",
    "Keep-Alive: 5",
    "TE: trailers",
    "Upgrade: h2c",
    "Proxy-Connection: x",
    "X-Umlaut: \u00fc".encode().decode("latin-1"),
]
ANSWERED = [
    "server: engine",
    "date: Thu, 01 Jan 2026 00:00:00 GMT",
    "Content-Type: text/event-stream",
    "Set-Cookie: a=1",
    "Set-Cookie: b=2",
    "x-request-id: e1",
    "Connection: X-Inner",
    "X-Inner: gone",
    "Keep-Alive: timeout=5",
    "Transfer-Encoding: chunked",
]


def listed(direction):
    return {difference.name for difference in DIFFERENCES if difference.direction == direction}


def pairs(fields):
    return [tuple(field.split(": ", 1)) for field in fields]


def unlisted(fields, direction, also=()):
    gone = listed(direction) | set(also)
    return [(name, value) for name, value in fields if name.lower() not in gone]


def answer(fakes, fields=ANSWERED, status="200 OK", body=b"0\r\n\r\n"):
    head = "\r\n".join([f"HTTP/1.1 {status}", *fields]) + "\r\n\r\n"
    return lambda seen: fakes.Script([head.encode("latin-1") + body])


@pytest.mark.parametrize("target", ["/v1/chat/completions", "/v1/embeddings"])
async def test_only_listed_headers_differ(start, client, fakes, target):
    engine, sidecar = await start(answer(fakes))
    reply = await client.ask(sidecar, "POST", target, CHAT, *SENT)
    seen = engine.seen[0]
    assert unlisted(seen.headers, "request") == unlisted(pairs(SENT), "request", ["x-hop"])
    assert seen.header("x-hop") is None
    assert seen.header("authorization") == "Bearer client"
    assert unlisted(reply.fields, "response") == unlisted(pairs(ANSWERED), "response", ["x-inner"])
    assert reply.header("date") == "Thu, 01 Jan 2026 00:00:00 GMT"
    assert reply.header("x-accel-buffering") == "no"


async def test_a_repeated_field_in_another_case_is_kept(start, client, fakes):
    engine, sidecar = await start(answer(fakes))
    await client.ask(sidecar, "GET", "/x", b"", "X-Custom: 1", "x-custom: 2")
    assert [pair for pair in engine.seen[0].headers if pair[0].lower() == "x-custom"] == [
        ("X-Custom", "1"),
        ("X-Custom", "2"),
    ]


async def test_a_scheduled_request_has_an_id_and_no_compression(start, client, fakes):
    engine, sidecar = await start(answer(fakes))
    reply = await client.ask(sidecar, "POST", "/v1/chat/completions", CHAT, "Accept-Encoding: gzip, br")
    own = reply.header("x-sagesched-request-id")
    assert own
    assert engine.seen[0].header("x-request-id") == own
    assert engine.seen[0].header("accept-encoding") == "identity"
    reply = await client.ask(sidecar, "POST", "/v1/chat/completions", CHAT, "X-Request-Id: mine")
    assert reply.header("x-sagesched-request-id") == "mine"
    assert engine.seen[1].header("x-request-id") == "mine"


async def test_an_id_in_use_or_unfit_travels_and_is_not_ours(start, client, fakes):
    engine, sidecar = await start(answer(fakes))
    wanted = "x" * 200
    reply = await client.ask(sidecar, "POST", "/v1/chat/completions", CHAT, f"X-Request-Id: {wanted}")
    assert engine.seen[0].header("x-request-id") == wanted
    assert reply.header("x-sagesched-request-id") != wanted


@pytest.mark.parametrize("target", ["/v1/chat/completions", "/v1/models"])
async def test_the_engines_key_replaces_the_clients(start, client, fakes, target):
    engine, sidecar = await start(answer(fakes), api_key="secret")
    await client.ask(sidecar, "POST", target, CHAT, "Authorization: Bearer client")
    keys = [value for name, value in engine.seen[0].headers if name.lower() == "authorization"]
    assert keys == ["Bearer secret"]


async def test_an_answer_without_server_or_type_gets_neither(start, client, fakes):
    _, sidecar = await start(answer(fakes, ["Content-Length: 2"], body=b"ok"))
    reply = await client.ask(sidecar, "GET", "/x")
    assert {name.lower() for name, _ in reply.fields} == {"content-length", "date"}


@pytest.mark.parametrize(
    ("method", "status", "fields", "length"),
    [
        ("HEAD", "200 OK", ["Content-Length: 12"], "12"),
        ("GET", "204 No Content", [], None),
        ("GET", "304 Not Modified", ["ETag: x"], None),
        ("GET", "200 OK", ["Content-Length: 0"], "0"),
    ],
)
async def test_answers_without_a_body(start, client, fakes, method, status, fields, length):
    _, sidecar = await start(answer(fakes, fields, status, b""))
    reply = await client.ask(sidecar, method, "/x")
    assert (f"{reply.status} {reply.reason}", reply.body) == (status, b"")
    assert reply.header("content-length") == length
    assert reply.header("transfer-encoding") is None


async def test_interim_answers_of_the_engine_are_not_the_answer(start, client, fakes):
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    _, sidecar = await start(lambda seen: fakes.Script([early]))
    reply = await client.ask(sidecar, "GET", "/x")
    assert (reply.status, reply.body) == (200, b"ok")


def test_the_page_lists_every_difference():
    page = (Path(__file__).parents[2] / "docs" / "headers.md").read_text(encoding="utf-8")
    for difference in DIFFERENCES:
        assert f"| {difference.direction} | `{difference.name}` | {difference.change} |" in page
