"""Disconnects, errors, keys, faults, pacing, metrics and drain."""

import asyncio
import json
import os
import signal
import sys
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from sagesched_sim.engine import Engine, EngineLimits, EngineRequest
from sagesched_sim.observations import Observations
from sagesched_sim.pacing import PacedEngine, Wanted
from sagesched_sim.profile import profile_named

CHAT = "/v1/chat/completions"
LONG = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 8000, "ignore_eos": True}


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_place_and_blocks(start_server: Any, until: Any, stream: bool) -> None:
    # At this speed the two would take four minutes: that they end at all is the disconnect's doing.
    server, url = await start_server(max_num_seqs=1, speedup=1.0)
    engine = server.paced.engine
    async with aiohttp.ClientSession() as client:
        tasks = [asyncio.create_task(_read(client, url, LONG | {"stream": stream})) for _ in range(2)]
        await until(lambda: (engine.running_count, engine.waiting_count) == (1, 1))
        for task in tasks:
            task.cancel()
        await until(lambda: not engine.has_work)
    assert engine.blocks.used == 0
    assert sum(server.observations.success.values()) == 0


async def _read(client: aiohttp.ClientSession, url: str, body: dict[str, Any]) -> bytes:
    async with client.post(url + CHAT, json=body) as answer:
        return await answer.read()


@pytest.mark.parametrize(
    ("path", "body", "status", "kind", "param"),
    [
        (CHAT, LONG | {"model": "gpt-9"}, 404, "NotFoundError", "model"),
        (CHAT, {"messages": [{"role": "user", "content": "x" * 40_000}]}, 400, "BadRequestError", "input_tokens"),
        (CHAT, LONG | {"max_tokens": 9000}, 400, "BadRequestError", "max_tokens"),
        (CHAT, LONG | {"max_tokens": 5, "min_tokens": 6}, 400, "BadRequestError", None),
        (CHAT, LONG | {"max_tokens": "many"}, 400, "Bad Request", "max_tokens"),
        (CHAT, LONG | {"n": 0}, 400, "Bad Request", "n"),
        (CHAT, {"messages": []}, 400, "Bad Request", "messages"),
        (CHAT, LONG | {"stream_options": {"include_usage": True}}, 400, "BadRequestError", "stream_options"),
        (CHAT, LONG | {"vllm_xargs": {"sim_output_tokens": "x"}}, 400, "BadRequestError", "vllm_xargs"),
        (CHAT, LONG | {"vllm_xargs": [1]}, 400, "Bad Request", "vllm_xargs"),
        (CHAT, LONG | {"vllm_xargs": {"a": None}}, 400, "Bad Request", "vllm_xargs"),
        (CHAT, LONG | {"vllm_xargs": {"a": {"b": 1}}}, 400, "Bad Request", "vllm_xargs"),
        ("/v1/completions", {"prompt": "x", "vllm_xargs": {"a": [1, [2]]}}, 400, "Bad Request", "vllm_xargs"),
        ("/v1/responses", {"input": "x", "vllm_xargs": {"a": [None]}}, 400, "Bad Request", "vllm_xargs"),
        ("/v1/completions", {"model": "sagesched-sim"}, 400, "Bad Request", None),
        ("/v1/completions", {"prompt": [[1], "a", {}]}, 400, "BadRequestError", "prompt"),
        ("/v1/responses", {"input": "hi", "background": True}, 400, "invalid_request_error", "background"),
        ("/v1/responses", {"input": "x" * 40_000}, 400, "BadRequestError", "input_tokens"),
    ],
)
async def test_refusals(
    start_server: Any, path: str, body: dict[str, Any], status: int, kind: str, param: str | None
) -> None:
    _, url = await start_server()
    async with aiohttp.ClientSession() as client, client.post(url + path, json=body) as answer:
        error = (await answer.json())["error"]
    assert (answer.status, error["code"], error["type"], error["param"]) == (status, status, kind, param)
    assert sorted(error) == ["code", "message", "param", "type"]


async def test_refusals_of_messages_are_of_anthropics_shape(start_server: Any) -> None:
    _, url = await start_server()
    body = {"model": "gpt-9", "max_tokens": 3, "messages": [{"role": "user", "content": "hi"}]}
    async with aiohttp.ClientSession() as client, client.post(f"{url}/v1/messages", json=body) as answer:
        assert answer.status == 404
        assert await answer.json() == {
            "type": "error",
            "error": {"type": "NotFoundError", "message": "The model `gpt-9` does not exist."},
        }


async def test_bodies_that_are_no_json_and_bodies_of_30_megabytes(start_server: Any) -> None:
    _, url = await start_server()
    json_type = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession() as client:
        for data, headers in ((b"{", json_type), (b"\xff", json_type), (b"{}", {"Content-Type": "text/plain"})):
            async with client.post(url + CHAT, data=data, headers=headers) as answer:
                assert (answer.status, (await answer.json())["error"]["type"]) == (400, "Bad Request")
        padded = {"messages": [{"role": "user", "content": [{"type": "x", "data": "A" * 30_000_000}]}], "max_tokens": 1}
        async with client.post(url + CHAT, json=padded) as answer:
            assert answer.status == 200


async def test_the_request_id_becomes_the_answers(start_server: Any) -> None:
    _, url = await start_server()
    headers = {"X-Request-Id": 'quote"d'}
    ids = []
    async with aiohttp.ClientSession() as client:
        for path, body in ((CHAT, LONG | {"max_tokens": 1}), ("/v1/completions", {"prompt": "a"})):
            async with client.post(url + path, json=body, headers=headers) as answer:
                ids.append((await answer.json())["id"])
    assert ids == ['chatcmpl-quote"d', 'cmpl-quote"d']


async def test_a_key_guards_v1_alone(start_server: Any) -> None:
    _, url = await start_server(api_key="secret")
    statuses = []
    async with aiohttp.ClientSession() as client:
        for path, key in (("/v1/models", "secret"), ("/v1/models", "wrong"), ("/v1/models", ""), ("/health", "")):
            async with client.get(url + path, headers={"Authorization": f"Bearer {key}"}) as answer:
                statuses.append(answer.status)
    assert statuses == [200, 401, 401, 200]


async def test_metrics_carry_vllms_names_and_true_counts(start_server: Any) -> None:
    server, url = await start_server()
    async with aiohttp.ClientSession() as client:
        for tokens in (5, 20):
            body = LONG | {"max_tokens": tokens, "stream": True, "n": 2}
            await _read(client, url, body)
        text = await (await client.get(f"{url}/metrics")).text()
    samples = {
        (sample.name, *sorted(set(sample.labels.values()) - {"0", "sagesched-sim"})): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert samples["vllm:generation_tokens_total",] == 50
    assert samples["vllm:request_success_total", "length"] == 4
    assert samples["vllm:request_success_total", "stop"] == 0
    assert samples["vllm:num_requests_running",] == samples["vllm:num_requests_waiting",] == 0
    assert samples["vllm:kv_cache_usage_perc",] == 0
    assert samples["vllm:request_generation_tokens_sum",] == 50
    assert samples["vllm:e2e_request_latency_seconds_count",] == 4
    assert samples["vllm:inter_token_latency_seconds_count",] == 46
    info = next(f for f in text_string_to_metric_families(text) if f.name == "vllm:cache_config_info").samples[0].labels
    limits = server.options.limits()
    assert (int(info["block_size"]), int(info["num_gpu_blocks"])) == (limits.block_size, limits.num_blocks)
    assert int(info["kv_cache_size_tokens"]) == limits.block_size * limits.num_blocks


async def test_an_error_before_the_first_byte(start_server: Any) -> None:
    server, url = await start_server(fault_rate=1.0, fault_kinds=("error500",))
    async with aiohttp.ClientSession() as client, client.post(url + CHAT, json=LONG) as answer:
        assert (answer.status, (await answer.json())["error"]["type"]) == (500, "InternalServerError")
    assert not server.paced.engine.has_work


@pytest.mark.parametrize("stream", [True, False])
async def test_a_connection_that_breaks_off(start_server: Any, until: Any, stream: bool) -> None:
    server, url = await start_server(fault_rate=1.0, fault_kinds=("disconnect",))
    async with aiohttp.ClientSession() as client:
        with pytest.raises(aiohttp.ClientError):
            await _read(client, url, LONG | {"max_tokens": 50, "stream": stream})
    await until(lambda: not server.paced.engine.has_work)


async def test_a_stream_that_stalls_goes_on_and_ends(start_server: Any) -> None:
    _, url = await start_server(fault_rate=1.0, fault_kinds=("stall",), stall_s=0.05)
    async with aiohttp.ClientSession() as client:
        body = await _read(client, url, LONG | {"max_tokens": 30, "stream": True})
    assert body.endswith(b"data: [DONE]\n\n")


async def test_steps_keep_to_absolute_deadlines() -> None:
    """The time in the engine is that of the profile plus the last step's lag alone: no sleep's overshoot adds up."""
    request = EngineRequest(id="r", prompt_tokens=4, output_tokens=60, max_tokens=60)
    profile, twin_s = profile_named("llama-3.1-8b-rtx4090"), 0.0
    twin = Engine(profile, EngineLimits())
    twin.submit(request)
    while twin.has_work:
        twin_s += twin.step().duration_s
    seen = Observations(8192)
    paced = PacedEngine(Engine(profile, EngineLimits()), speedup=20.0, observations=seen)
    stepping = asyncio.create_task(paced.run())
    session = paced.open([Wanted(4, 60, 60)], interval_tokens=None, priority=0)
    assert await session.pieces()
    stepping.cancel()
    took_s = seen.histograms["request_inference_time_seconds"].total
    assert took_s == pytest.approx(twin_s / 20 + paced.lag_s)
    assert paced.lag_s >= 0, "never faster than the profile"


async def test_as_a_program_it_says_where_it_is_drains_and_ends_with_0() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sagesched_sim", "--speedup", "20"),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    assert process.stdout is not None
    ready = json.loads(await process.stdout.readline())
    body = LONG | {"max_tokens": 40, "stream": True}
    async with aiohttp.ClientSession() as client, client.post(ready["url"] + CHAT, json=body) as answer:
        first = await answer.content.readline()
        process.send_signal(signal.SIGTERM)
        rest = await answer.read()
    assert first.startswith(b"data: ")
    assert rest.endswith(b"data: [DONE]\n\n"), "what was under way ended"
    assert await process.wait() == 0


async def test_as_a_program_it_ends_with_64_where_an_option_is_wrong() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sagesched_sim", "--speedup", "-1"), stderr=asyncio.subprocess.PIPE
    )
    _, errors = await process.communicate()
    assert process.returncode == 64
    assert b"speedup: -1" in errors


async def test_a_dead_engine_is_not_healthy_and_ends_the_server(start_server: Any, until: Any) -> None:
    server, url = await start_server()

    def broken() -> None:
        raise RuntimeError("no more steps")

    server.paced.engine.step = broken
    async with aiohttp.ClientSession() as client:
        task = asyncio.create_task(_read(client, url, LONG))
        with pytest.raises(RuntimeError, match="no more steps"):
            await server.failure()
        async with client.get(f"{url}/health") as answer:
            assert answer.status == 503
        task.cancel()
