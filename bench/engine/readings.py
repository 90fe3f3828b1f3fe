"""What the engine's /metrics says while it works."""

import asyncio
from typing import NamedTuple

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

INTERVAL_S = 0.5


class Reading(NamedTuple):
    """One look."""

    at_s: float
    running: float
    waiting: float
    generated_tokens: float
    preemptions: float


async def read(http: aiohttp.ClientSession, url: str) -> Reading:
    """A look now."""
    async with http.get(f"{url}/metrics") as answer:
        text = await answer.text()
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] = found.get(sample.name, 0.0) + sample.value
    return Reading(
        asyncio.get_running_loop().time(),
        found["vllm:num_requests_running"],
        found["vllm:num_requests_waiting"],
        found["vllm:generation_tokens_total"],
        found["vllm:num_preemptions_total"],
    )


async def watch(url: str, seen: list[Reading]) -> None:
    """Look until cancelled."""
    async with aiohttp.ClientSession() as http:
        while True:
            seen.append(await read(http, url))
            await asyncio.sleep(INTERVAL_S)


def full_rate(seen: list[Reading]) -> float:
    """Output tokens a second while requests waited for a place or for memory. Raises ValueError where none did."""
    full = [reading for reading in seen if reading.generated_tokens > 0 and reading.waiting > 0]
    if len(full) < 10:
        raise ValueError("the engine was not full for long enough to measure its capacity; ask for more requests")
    first, last = full[0], full[-1]
    return (last.generated_tokens - first.generated_tokens) / (last.at_s - first.at_s)
