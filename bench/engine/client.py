"""The load: one streaming chat call for each arrival, timed from the moment at which it should have arrived."""

import asyncio
import json
from collections.abc import Sequence

import aiohttp
import msgspec
from bench.engine.vllm_process import MODEL
from bench.engine.workload import MAX_TOKENS, Asked

RUN_LIMIT_S = 1800.0


class Shot(msgspec.Struct, frozen=True):
    """What is sent, when (seconds after the start of the run), and with which priority in the body, if any."""

    asked: Asked
    arrival_s: float
    priority: int | None = None


class Served(msgspec.Struct, frozen=True):
    """One request as its client saw it; seconds after the start of the run."""

    arrival_s: float
    """When it should have been sent."""
    sent_s: float
    first_token_s: float
    last_token_s: float
    output_tokens: int


async def drive(url: str, shots: Sequence[Shot], ended: "asyncio.Queue[int] | None" = None) -> list[Served]:
    """Send every shot at its time. Raises RuntimeError at the first that fails; `ended` gets a number for each."""
    connector = aiohttp.TCPConnector(limit=0, force_close=True)
    timeout = aiohttp.ClientTimeout(total=RUN_LIMIT_S)
    async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
        start_s = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(_send(http, url, shot, start_s, ended)) for shot in shots]
    return [task.result() for task in tasks]


async def _send(
    http: aiohttp.ClientSession, url: str, shot: Shot, start_s: float, ended: "asyncio.Queue[int] | None"
) -> Served:
    now = asyncio.get_running_loop().time
    await asyncio.sleep(max(0.0, start_s + shot.arrival_s - now()))
    sent_s, first_s, last = now(), 0.0, b""
    async with http.post(f"{url}/v1/chat/completions", json=body_of(shot)) as answer:
        if answer.status != 200:
            raise RuntimeError(f"a request failed with {answer.status}: {(await answer.text())[:300]}")
        while event := await answer.content.readline():
            if not event.startswith(b"data: {"):
                continue
            first_s = first_s or now()  # the role's event comes with the first token
            last = event
    if ended is not None:
        ended.put_nowait(1)
    tokens = json.loads(last.removeprefix(b"data: "))["usage"]["completion_tokens"]
    return Served(shot.arrival_s, sent_s - start_s, first_s - start_s, now() - start_s, tokens)


def body_of(shot: Shot) -> dict[str, object]:
    """Every request alike but for its prompt; nothing in it tells its length."""
    body: dict[str, object] = {
        "model": MODEL,
        "messages": [{"role": "user", "content": shot.asked.prompt}],
        "max_tokens": MAX_TOKENS,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    return body if shot.priority is None else body | {"priority": shot.priority}
