"""Requests to a real engine, and what its pages say."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from real_engine import MODEL, SLOTS

Http = aiohttp.ClientSession
FILLING_TOKENS = 450
"""Longer than any test needs to queue what it asks, and as many as have slots fit the cache of every engine."""


def base(sidecar: Any) -> str:
    """The URL of a sidecar in this process."""
    host, port = sidecar.address
    return f"http://{host}:{port}"


def completion(prompt: str | list[int], tokens: int, **more: Any) -> dict[str, Any]:
    """A body whose answer has exactly so many tokens."""
    return {"model": MODEL, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True} | more


async def ask(http: Http, url: str, request_id: str, body: dict[str, Any], **headers: str) -> dict[str, Any]:
    """The whole answer of /v1/completions; its status must be 200."""
    named = {"X-Request-Id": request_id} | headers
    async with http.post(f"{url}/v1/completions", json=body, headers=named) as answer:
        document: dict[str, Any] = await answer.json()
        assert answer.status == 200, document
        return document


async def metrics(http: Http, url: str) -> dict[str, float]:
    """The page's samples by name, added up over their labels."""
    async with http.get(f"{url}/metrics") as answer:
        text = await answer.text()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return found


async def until(http: Http, url: str, *, running: int, waiting: int | None = None) -> None:
    """Until the engine has so many running and waiting. Fails after 60 s."""
    async with asyncio.timeout(60):
        while True:
            now = await metrics(http, url)
            is_so = now["vllm:num_requests_running"] == running
            if is_so and waiting in (None, now["vllm:num_requests_waiting"]):
                return
            await asyncio.sleep(0.05)


@asynccontextmanager
async def filled(
    http: Http, url: str, name: str, *, slots: int = SLOTS, through: str | None = None
) -> AsyncIterator[None]:
    """Each slot of the engine (asked `through` a sidecar, or directly) has a request of a client that leaves at the end
    of the block: what waits starts then and not before."""
    body = completion("Once", FILLING_TOKENS)
    filling = [asyncio.create_task(ask(http, through or url, f"{name}-fill-{n}", body)) for n in range(slots)]
    try:
        await until(http, url, running=slots)
        yield
        assert not any(task.done() for task in filling), "it answered before the test had queued all"
    finally:
        for task in filling:
            task.cancel()
        await asyncio.gather(*filling, return_exceptions=True)
