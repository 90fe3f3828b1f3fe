"""The modes before the real engine: what a trial finds, and whose order the engine then keeps."""

import asyncio
import json
from typing import Any

import pytest
from engine_asks import ask, base, completion, filled, until
from real_engine import SLOTS, RealEngine

WORDS = {"alpha": 160, "bravo": 20, "cobra": 120, "delta": 40, "ember": 80}
BODIES = {
    "/v1/completions": {"prompt": "Once"},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "Once"}]},
    "/v1/responses": {"input": "Once"},
    "/v1/messages": {"messages": [{"role": "user", "content": "Once"}]},
}


async def mode_of(http: Any, sidecar: Any) -> dict[str, str]:
    async with http.get(f"{base(sidecar)}/sagesched/status") as answer:
        found: dict[str, str] = (await answer.json())["mode"]
    return found


@pytest.mark.parametrize(("stock", "found"), [("fcfs", ("gate", "refused")), ("by_priority", ("priority", "trial"))])
async def test_a_trial_finds_out_whether_the_engine_orders(
    request: pytest.FixtureRequest, http: Any, before: Any, stock: str, found: tuple[str, str]
) -> None:
    engine: RealEngine = request.getfixturevalue(stock)
    sidecar = await before(engine.url, {"engine": {"mode": "priority", "slots": SLOTS}})
    async with asyncio.timeout(120):
        while (mode := await mode_of(http, sidecar))["reason"] == "unverified":
            await asyncio.sleep(0.2)
    assert (mode["effective"], mode["reason"]) == found, mode["detail"]


async def test_in_priority_mode_the_engine_admits_what_is_short_first(
    by_priority: RealEngine, http: Any, before: Any, tmp_path: Any
) -> None:
    seed = tmp_path / "seed.jsonl"
    rows = [
        {"prompt": f"{word} " * 12, "output_tokens": length, "model": "smollm2"}
        for word, length in WORDS.items()
        for _ in range(60)
    ]
    seed.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    section = {"mode": "priority", "arguments": ["--scheduling-policy", "priority", "--max-num-seqs", str(SLOTS)]}
    sidecar = await before(
        by_priority.url,
        {"engine": section, "history": {"seedFile": str(seed)}, "scheduling": {"boost": 0}},
    )
    sent = []
    async with filled(http, by_priority.url, "m"):
        for number, word in enumerate(WORDS):
            body = completion(f"{word} " * 12, 16, priority=-number)
            del body["max_tokens"]  # the engine's default is 16; a cap would make all predictions the same
            sent.append(asyncio.create_task(ask(http, base(sidecar), f"m-{word}-x", body)))
            await until(http, by_priority.url, running=SLOTS, waiting=number + 1)
    await asyncio.gather(*sent)
    admitted = [one.split("-")[2] for one, _ in by_priority.admitted() if one.split("-")[1] == "m"]
    assert [word for word in admitted if word != "fill"] == sorted(WORDS, key=WORDS.__getitem__)


@pytest.mark.parametrize("path", sorted(BODIES))
@pytest.mark.parametrize("mode", ["engine", "priority", "shadow"])
async def test_the_engine_takes_what_each_mode_sends_it(
    fcfs: RealEngine, http: Any, before: Any, path: str, mode: str
) -> None:
    section = {"mode": mode, "slots": SLOTS} | ({} if mode == "shadow" else {"force": True})
    sidecar = await before(fcfs.url, {"engine": section})
    limit = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
    body = BODIES[path] | {"model": "smollm2", limit: 3, "priority": 7, "vllm_xargs": {"own": 1}}
    async with http.post(base(sidecar) + path, json=body) as answer:
        assert answer.status == 200, await answer.text()
