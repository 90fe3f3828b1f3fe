"""The order in which the real engine admits, read back from its own scheduler."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from engine_asks import ask, base, completion, filled, until
from real_engine import MODEL, SLOTS, RealEngine

WORDS = ["alpha", "bravo", "cobra", "delta", "ember"]
LENGTHS = [160, 20, 120, 40, 80]
BY_LENGTH = [str(number) for number in sorted(range(len(LENGTHS)), key=LENGTHS.__getitem__)]


def earlier(file: Path) -> Path:
    """A seed file that knows a length for each word."""
    rows = [
        {"prompt": f"{word} " * 12, "output_tokens": length, "model": MODEL}
        for word, length in zip(WORDS, LENGTHS, strict=True)
        for _ in range(60)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file


def short(number: int) -> dict[str, Any]:
    """A prompt of one word. Its answer is over soon, but its cap is far: the cap caps predictions too."""
    return completion(f"{WORDS[number]} " * 12, 400, stop=[" ", "a", "e", "o"])


def order(engine: RealEngine, name: str) -> list[str]:
    """The names' last parts in the order of admission, without those that filled it."""
    ids = [one.split("-") for one, _ in engine.admitted()]
    return [parts[2] for parts in ids if parts[1] == name and parts[2] != "fill"]


@pytest.mark.parametrize("stock", ["fcfs", "by_priority"])
async def test_a_body_s_priority_orders_the_engine_s_queue_only_by_that_policy(
    request: pytest.FixtureRequest, http: Any, stock: str
) -> None:
    """What the priority mode builds on; under fcfs the same bodies are accepted and their priorities ignored."""
    engine: RealEngine = request.getfixturevalue(stock)
    sent = []
    async with filled(http, engine.url, "body"):
        for number, priority in enumerate([5, -3, 1 << 40, 0, -(1 << 40)]):
            body = completion("Then", 2, priority=priority)
            sent.append(asyncio.create_task(ask(http, engine.url, f"body-{number}-x", body)))
            await until(http, engine.url, running=SLOTS, waiting=number + 1)
    await asyncio.gather(*sent)
    assert order(engine, "body") == (["4", "1", "3", "0", "2"] if stock == "by_priority" else list("01234"))


async def test_gate_mode_admits_what_is_short_first(fcfs: RealEngine, http: Any, before: Any, tmp_path: Any) -> None:
    """The prompts say nothing but a word; the history knows how long answers to that word are."""
    seed = earlier(tmp_path / "seed.jsonl")
    sidecar = await before(
        fcfs.url, {"engine": {"slots": 1}, "history": {"seedFile": str(seed)}, "scheduling": {"boost": 0}}
    )
    url = base(sidecar)
    tasks = []
    async with filled(http, fcfs.url, "gate", slots=1, through=url):
        for number in range(len(WORDS)):
            tasks.append(asyncio.create_task(ask(http, url, f"gate-{number}-x", short(number))))
            async with asyncio.timeout(20):
                while sidecar.gate.snapshot().waiting <= number:
                    await asyncio.sleep(0.01)
    await asyncio.gather(*tasks)
    assert order(fcfs, "gate") == BY_LENGTH
