"""The two phases of a drain."""

import asyncio
import json

from sagesched_sidecar.server import drain

CHAT = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]}).encode()
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
REASON = "x-sagesched-reason"


async def never():
    await asyncio.Event().wait()


async def two_in_one_slot(start, client, fakes):
    """One request runs, one waits; the engine answers when `go` is set."""
    go = asyncio.Event()
    engine, sidecar = await start(lambda seen: fakes.Script([OK], gate=go), {"engine": {"slots": 1}})
    runs = asyncio.ensure_future(client.ask(sidecar, "POST", "/v1/completions", CHAT))
    await engine.request(0)
    waits = asyncio.ensure_future(client.ask(sidecar, "POST", "/v1/completions", CHAT))
    async with asyncio.timeout(5):
        while sidecar.gate.snapshot().waiting < 1:
            await asyncio.sleep(0.001)
    return sidecar, go, runs, waits


async def test_open_requests_go_on_and_new_ones_are_refused(start, client, fakes):
    sidecar, go, runs, waits = await two_in_one_slot(start, client, fakes)
    draining = asyncio.ensure_future(drain(sidecar, 60, never()))
    async with asyncio.timeout(5):
        while not sidecar.admin.draining:
            await asyncio.sleep(0.001)
    ready = await client.ask(sidecar, "GET", "/readyz")
    assert (ready.status, json.loads(ready.body)["draining"]) == (503, True)
    late = await client.ask(sidecar, "POST", "/v1/completions", CHAT)
    assert (late.status, late.header(REASON)) == (503, "draining")
    assert late.header("retry-after")
    go.set()
    async with asyncio.timeout(5):
        assert [(await runs).body, (await waits).body] == [b"ok", b"ok"]
        await draining


async def test_at_the_end_what_waits_is_refused(start, client, fakes):
    sidecar, _, runs, waits = await two_in_one_slot(start, client, fakes)
    async with asyncio.timeout(5):
        await drain(sidecar, 0.01, never())
        reply = await waits
    assert (reply.status, reply.header(REASON)) == (503, "draining")
    assert not runs.done()
    runs.cancel()
    await asyncio.gather(runs, return_exceptions=True)


async def test_a_second_signal_ends_the_drain(start, client, fakes):
    sidecar, _, runs, waits = await two_in_one_slot(start, client, fakes)
    again = asyncio.Event()
    draining = asyncio.ensure_future(drain(sidecar, 600, again.wait()))
    again.set()
    async with asyncio.timeout(5):
        await draining
        assert (await waits).status == 503
    runs.cancel()
    await asyncio.gather(runs, return_exceptions=True)


async def test_an_idle_sidecar_is_drained_at_once(start, client, fakes):
    _, sidecar = await start(lambda seen: fakes.Script([OK]))
    async with asyncio.timeout(5):
        await drain(sidecar, 600, never())
    assert sidecar.admin.draining
