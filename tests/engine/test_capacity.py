"""What the real /metrics teaches the gate, and what that is good for."""

import asyncio
from typing import Any

from engine_asks import ask, base, completion, metrics
from real_engine import KV_TOKENS, SLOTS, RealEngine

PROMPT_TOKENS = 480
OUTPUT_TOKENS = 100
"""Four of these do not fit the cache; three do."""
PREEMPTIONS = "vllm:num_preemptions_total"


async def at_once(http: Any, url: str, name: str) -> None:
    """As many long answers as the engine has places."""
    asked = [ask(http, url, f"{name}-{n}", story(n)) for n in range(SLOTS)]
    await asyncio.gather(*asked)


def story(number: int) -> dict[str, Any]:
    """A request that fills more than a quarter of the cache, with a prompt that no other shares."""
    return completion([100 + number] * PROMPT_TOKENS, OUTPUT_TOKENS)


async def test_the_gate_reads_the_kv_cache_s_size_and_keeps_the_engine_from_preempting(
    fcfs: RealEngine, http: Any, before: Any
) -> None:
    begun = (await metrics(http, fcfs.url))[PREEMPTIONS]
    await at_once(http, fcfs.url, "stock")
    alone = (await metrics(http, fcfs.url))[PREEMPTIONS]
    assert alone > begun, "the load is too small to show anything"

    sidecar = await before(fcfs.url)
    assert sidecar.gate.snapshot().kv_tokens == KV_TOKENS
    await at_once(http, base(sidecar), "gated")
    assert (await metrics(http, fcfs.url))[PREEMPTIONS] == alone


async def test_the_gate_learns_the_slots_from_the_engine_s_queue(
    by_priority: RealEngine, http: Any, before: Any
) -> None:
    sidecar = await before(by_priority.url, {"engine": {"metricsIntervalSeconds": 0.1}})
    asked = [ask(http, base(sidecar), f"many-{n}", completion(f"Line {n}", 60)) for n in range(3 * SLOTS)]
    await asyncio.gather(*asked)
    assert sidecar.gate.snapshot().slots == SLOTS
