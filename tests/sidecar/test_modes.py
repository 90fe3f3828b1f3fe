"""The modes from outside: what reaches the engine, in which order, and what is said about it."""

import asyncio
import json

import pytest

from sagesched import hint
from sagesched.engine_priority import class_range
from sagesched.hint import Hint

ARGUMENTS = {
    "priority": ["--scheduling-policy", "priority", "--max-num-seqs", "1"],
    "engine": ["--scheduler-cls", "sagesched_vllm.Scheduler", "--max-num-seqs", "1"],
}
PROMPTS = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hello"}]},
    "/v1/completions": {"prompt": "hello"},
    "/v1/responses": {"input": "hello"},
    "/v1/messages": {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 5},
}
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
CLASSES = [{"name": "batch", "priority": 3}]


def settings(mode, **engine):
    return {
        "engine": {"mode": mode, "arguments": ARGUMENTS.get(mode, []), **engine},
        "scheduling": {"classes": CLASSES},
    }


def answer(fakes):
    return lambda seen: fakes.Script(
        [b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"]
    )


async def status(client, sidecar):
    return json.loads((await client.ask(sidecar, "GET", "/sagesched/status")).body)


async def scrape(client, sidecar):
    return (await client.ask(sidecar, "GET", "/metrics")).body.decode()


@pytest.mark.parametrize("path", sorted(PROMPTS))
@pytest.mark.parametrize("mode", ["priority", "engine"])
async def test_the_place_travels_in_the_body_or_in_the_header(start, client, fakes, path, mode):
    engine, sidecar = await start(answer(fakes), settings(mode))
    body = PROMPTS[path] | {"priority": -(2**62), "vllm_xargs": {"own": 1, "sagesched_v": 9}}
    fields = ("X-Vllm-Priority: -99", "x-sagesched-class: batch")
    await client.ask(sidecar, "POST", path, json.dumps(body).encode(), *fields)
    seen, got = engine.seen[0], json.loads(engine.seen[0].body)
    first, last = class_range(3)
    if path == "/v1/messages":
        assert got == body
        assert first <= int(seen.header("x-vllm-priority")) <= last
        return
    assert seen.header("x-vllm-priority") is None
    assert first <= got["priority"] <= last
    assert got["vllm_xargs"]["own"] == 1
    told = hint.decode(got["vllm_xargs"])
    if mode == "engine":
        assert isinstance(told, Hint)
        assert (told.class_name, told.priority) == ("batch", 3)
    else:
        assert told is None


async def test_in_the_gate_a_client_s_priority_is_its_class_s_and_is_counted(start, client, fakes):
    engine, sidecar = await start(answer(fakes), settings("gate"))
    for body in ({"prompt": "x", "priority": -7}, {"prompt": "x"}):
        await client.ask(sidecar, "POST", "/v1/completions", json.dumps(body).encode(), "X-Vllm-Priority: -99")
    await client.ask(sidecar, "GET", "/v1/models", b"", "X-Vllm-Priority: -99")
    assert [seen.header("x-vllm-priority") for seen in engine.seen if "health" not in seen.target] == [None] * 3
    assert json.loads(engine.seen[0].body) == {"prompt": "x", "priority": 0}
    assert engine.seen[1].body == b'{"prompt": "x"}'
    page = await scrape(client, sidecar)
    assert 'sagesched_client_priority_total{how="body"} 1.0' in page
    assert 'sagesched_client_priority_total{how="header"} 2.0' in page


async def test_all_go_in_at_once_but_for_the_bounds_of_the_queue(start, client, fakes):
    holds = asyncio.Event()
    bounds = settings("priority") | {"queue": {"maxRequests": 2}}
    engine, sidecar = await start(lambda seen: fakes.Script([OK], gate=holds), bounds)
    asked = [
        asyncio.create_task(client.ask(sidecar, "POST", "/v1/completions", b'{"prompt": "%d"}' % k)) for k in range(3)
    ]
    while sidecar.gate.snapshot().running < 3:
        await asyncio.sleep(0.01)
    assert sidecar.gate.snapshot().waiting == 0
    assert sidecar.gate.snapshot().predicted_waiting_tokens > 0
    refused = await client.ask(sidecar, "POST", "/v1/completions", b'{"prompt": "4"}')
    assert (refused.status, refused.header("x-sagesched-reason")) == (429, "queue-full")
    assert refused.header("x-llm-d-request-dropped-reason") == "rejected-saturated"
    holds.set()
    assert [reply.status for reply in await asyncio.gather(*asked)] == [200] * 3
    assert len(engine.seen) >= 3


async def test_a_mode_that_nothing_proves_is_served_by_the_gate_and_said_so(start, client, fakes):
    _, sidecar = await start(answer(fakes), {"engine": {"mode": "priority", "probe": False}})
    mode = (await status(client, sidecar))["mode"]
    assert (mode["configured"], mode["effective"], mode["reason"]) == ("priority", "gate", "unverified")
    line = 'sagesched_mode{configured="priority",effective="gate",reason="unverified"} 1.0'
    assert line in await scrape(client, sidecar)
    assert sidecar.gate.entry == "room"
