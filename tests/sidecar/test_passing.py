"""What is not scheduled passes as it came."""

import pytest


def plain(fakes, body=b"hello", *fields, status="200 OK", end="close"):
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *fields]) + "\r\n\r\n"
    return lambda seen: fakes.Script([head.encode() + body], end)


@pytest.mark.parametrize(
    "target",
    ["/v1/models", "/a%2Fb/../c?x=%20&y=a+b&z", "/x?", "//double", "/%e4?q=%C3%A4", "/v1/chat/completions?a=b"],
)
async def test_the_target_travels_as_it_came(start, client, fakes, target):
    engine, sidecar = await start(plain(fakes))
    reply = await client.ask(sidecar, "GET", target)
    assert (reply.status, reply.body) == (200, b"hello")
    assert engine.seen[0].target == target


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS", "REPORT"])
async def test_any_method_passes_with_its_body(start, client, fakes, method):
    engine, sidecar = await start(plain(fakes))
    await client.ask(sidecar, method, "/files/1", b"\x00\xffbody")
    assert engine.seen[0].line.split(b" ")[0].decode() == method
    assert engine.seen[0].body == b"\x00\xffbody"
