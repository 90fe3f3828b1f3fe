"""A thousand mixed exchanges: the bytes that the engine's socket wrote against the bytes that the client read."""

import asyncio
import random

import mixed_exchanges as mixed
import numpy as np
import pytest
import raw_upstream as fakes

from sagesched.settings import decode
from sagesched_sidecar.options import Options
from sagesched_sidecar.server import running

EXCHANGES = 1000
AT_ONCE = 40
SEED = 20_260_101


class OneVector:
    name, dimensions, blocking = "one", 4, False

    def embed(self, text):
        return np.full(4, 0.5, dtype=np.float32)


async def read_answer(reader):
    """Status line and body, and whether the body was cut."""
    head = (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")
    fields = {k.lower(): v.strip() for k, _, v in (line.partition(b":") for line in head[1:] if line)}
    body = bytearray()
    try:
        if fields.get(b"transfer-encoding") == b"chunked":
            while size := int(await reader.readuntil(b"\r\n"), 16):
                body += (await reader.readexactly(size + 2))[:-2]
            await reader.readexactly(2)
        else:
            body += await reader.readexactly(int(fields[b"content-length"]))
    except asyncio.IncompleteReadError as cut:
        return head[0], bytes(body + cut.partial), True
    return head[0], bytes(body), False


async def one(sidecar, exchange):
    reader, writer = await asyncio.open_connection(*sidecar.address, limit=1 << 24)
    try:
        fields = f"Host: x\r\nX-Number: {exchange.number}\r\nContent-Length: {len(exchange.body)}"
        writer.write(f"{exchange.method} {exchange.path} HTTP/1.1\r\n{fields}\r\n\r\n".encode() + exchange.body)
        return await read_answer(reader)
    finally:
        writer.close()


def differs(exchange, line, body, cut):
    """What is wrong with an answer; empty when nothing is."""
    if line != f"HTTP/1.1 {exchange.status}".encode():
        return f"status {line!r}"
    if cut != (exchange.cut_after is not None):
        return f"cut {cut}"
    return "" if body == exchange.read else "bytes"


@pytest.mark.parametrize("mode", ["gate", "shadow"])
async def test_no_byte_differs_in_a_thousand_mixed_exchanges(mode):
    rng = random.Random(SEED)
    exchanges = [mixed.make(rng, number) for number in range(EXCHANGES)]
    if mode == "shadow":  # nothing is asked for, so nothing is taken out
        for exchange in exchanges:
            exchange.expected, exchange.stripped = exchange.answer, None

    def answer(seen):
        exchange = exchanges[int(seen.header("x-number"))]
        return fakes.Script(exchange.wire(random.Random(exchange.number)), "close")

    settings = decode({"engine": {"slots": 30, "mode": mode}})
    async with fakes.RawUpstream(answer) as engine:
        options = Options(engine.url, "127.0.0.1", 0, "info", settings, None)
        async with running(options, OneVector()) as sidecar:
            limit = asyncio.Semaphore(AT_ONCE)

            async def limited(exchange):
                async with limit:
                    return await one(sidecar, exchange)

            answers = await asyncio.gather(*map(limited, exchanges))
            while (snapshot := sidecar.gate.snapshot()).running:  # shadow mode learns after the answer
                await asyncio.sleep(0.01)
    if mode == "shadow":
        assert [seen for seen in engine.seen if seen.body != exchanges[int(seen.header("x-number"))].body] == []
    wrong = {e.number: what for e, got in zip(exchanges, answers, strict=True) if (what := differs(e, *got))}
    assert wrong == {}
    assert (snapshot.running, snapshot.waiting, snapshot.waiting_bytes) == (0, 0, 0)
    kinds = {(e.path, e.framing, e.cut_after is not None) for e in exchanges}
    assert len(kinds) > 30
