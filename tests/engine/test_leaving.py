"""Clients that leave, and a sidecar that is told to end, before a real engine."""

import asyncio
import json
import signal
import sys
from typing import Any

import aiohttp
from engine_asks import FILLING_TOKENS, ask, base, completion, metrics, until
from real_engine import MODEL, SLOTS, RealEngine

LONG = 1500
ABORTED = "vllm:request_success_total"


async def test_a_client_that_leaves_aborts_its_request_in_the_engine(
    by_priority: RealEngine, http: Any, before: Any
) -> None:
    """Streaming or not, before or after its first token, running or waiting in the gate."""
    sidecar = await before(by_priority.url, {"engine": {"slots": SLOTS}})
    finished = (await metrics(http, by_priority.url))[ABORTED]
    asked = [
        asyncio.create_task(ask(http, base(sidecar), f"leave-{n}", completion(f"Leave {n}", LONG, stream=n % 2 == 0)))
        for n in range(SLOTS + 2)
    ]
    await until(http, by_priority.url, running=SLOTS)
    for task in asked:
        task.cancel()
    await asyncio.gather(*asked, return_exceptions=True)
    await until(http, by_priority.url, running=0, waiting=0)
    snapshot = sidecar.gate.snapshot()
    assert (snapshot.running, snapshot.waiting, snapshot.waiting_bytes) == (0, 0, 0)
    assert (await metrics(http, by_priority.url))[ABORTED] == finished, "they ran to their end"


async def test_a_drain_serves_what_is_open_and_refuses_what_is_new(by_priority: RealEngine, http: Any) -> None:
    """A process of its own, ended as a kubelet ends it, with a stream in the middle and one request waiting."""
    command = ["-m", "sagesched_sidecar", "--upstream", by_priority.url, "--port", "0", "--slots", "1"]
    process = await asyncio.create_subprocess_exec(sys.executable, *command, stdout=asyncio.subprocess.PIPE)
    try:
        assert process.stdout is not None
        url = json.loads(await process.stdout.readline())["url"]
        body = completion("Once upon a time", FILLING_TOKENS, stream=True)
        async with http.post(f"{url}/v1/completions", json=body) as stream:
            first = await stream.content.readuntil(b"\n\n")
            waiting = asyncio.create_task(ask(http, url, "drain-waits", completion("Then", 8)))
            await until_waiting(http, url)
            process.send_signal(signal.SIGTERM)
            refused = await refusal(http, url)
            rest = await stream.content.read()
        assert refused == 503
        assert (first + rest).endswith(b"data: [DONE]\n\n")
        assert (await waiting)["usage"]["completion_tokens"] == 8
        assert await asyncio.wait_for(process.wait(), 30) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def until_waiting(http: aiohttp.ClientSession, url: str) -> None:
    """Until one request waits in the sidecar's gate."""
    async with asyncio.timeout(20):
        while True:
            async with http.get(f"{url}/sagesched/status") as answer:
                if (await answer.json())["gate"]["waiting"] == 1:
                    return
            await asyncio.sleep(0.02)


async def refusal(http: aiohttp.ClientSession, url: str) -> int:
    """The status of a request that comes after the signal; those that come before it is heeded leave again."""
    body = {"model": MODEL, "prompt": "Late", "max_tokens": 1}
    async with asyncio.timeout(20):
        while True:
            async with http.get(f"{url}/readyz") as ready:
                if (await ready.json())["draining"]:
                    break
            await asyncio.sleep(0.02)
    async with http.post(f"{url}/v1/completions", json=body) as answer:
        return int(answer.status)
