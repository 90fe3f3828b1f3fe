"""What is no HTTP is refused with a reason, and none of its bytes are quoted: they may be a prompt."""

import asyncio
import logging

import pytest

SECRET = b"zanzibar-marmalade"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
NO_HTTP = {
    "body longer than stated": POST + b"Content-Length: 2\r\n\r\n{}" + SECRET + b" and more\r\n\r\n",
    "chunk size": POST + b"Transfer-Encoding: chunked\r\n\r\n" + SECRET + b"\r\n",
    "header": POST + b"Content-Length: " + SECRET + b"\r\n\r\n",
    "no HTTP at all": b"\x16\x03 " + SECRET + b"\r\n\r\n",
}


@pytest.mark.parametrize("sent", NO_HTTP.values(), ids=NO_HTTP.keys())
async def test_refused_with_a_reason_and_never_quoted(start, fakes, caplog, sent):
    caplog.set_level(logging.DEBUG)
    ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    _, sidecar = await start(lambda seen: fakes.Script([ok]))
    reader, writer = await asyncio.open_connection(*sidecar.address)
    writer.write(sent)
    async with asyncio.timeout(10):
        answer = await reader.read()
    writer.close()
    refused = answer[answer.rindex(b"HTTP/1.") :]
    assert refused.split(b" ")[1] == b"400"
    assert b"x-sagesched-reason: bad-http" in refused
    assert SECRET not in answer
    assert SECRET.decode() not in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
