"""What the sidecar answers itself."""

import asyncio
import json

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sagesched.scoreboard import MIN_SCORED
from sagesched.scoring import MIXTURE, Score

SECRET = "zanzibar"
CHAT = json.dumps({"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": SECRET}]}).encode()
ANSWER = json.dumps(
    {
        "choices": [{"finish_reason": "stop"}],
        "usage": {"prompt_tokens": 40, "completion_tokens": 6, "prompt_tokens_details": {"cached_tokens": 32}},
    }
).encode()
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER)


def document(reply):
    return json.loads(reply.body)


async def families(client, sidecar):
    reply = await client.ask(sidecar, "GET", "/metrics")
    return {family.name: family for family in text_string_to_metric_families(reply.body.decode())}


async def test_ready_while_the_engine_is_there(start, client, fakes):
    engine, sidecar = await start(lambda seen: fakes.Script([OK]), {"engine": {"metricsIntervalSeconds": 0.01}})
    assert document(await client.ask(sidecar, "GET", "/healthz")) == {"alive": True}
    async with asyncio.timeout(5):
        while (await client.ask(sidecar, "GET", "/readyz")).status != 200:
            await asyncio.sleep(0.001)
        await engine.stop()
        while (reply := await client.ask(sidecar, "GET", "/readyz")).status == 200:
            await asyncio.sleep(0.001)
    assert document(reply) == {"ready": False, "draining": False, "engine_reachable": False}


async def test_a_waiting_a_running_and_a_finished_request_are_explained(start, client, fakes):
    go = asyncio.Event()
    engine, sidecar = await start(lambda seen: fakes.Script([OK], gate=go), {"engine": {"slots": 1}})
    first = asyncio.ensure_future(client.ask(sidecar, "POST", "/v1/chat/completions", CHAT, "X-Request-Id: one"))
    await engine.request(0)
    second = asyncio.ensure_future(client.ask(sidecar, "POST", "/v1/chat/completions", CHAT, "X-Request-Id: two"))
    async with asyncio.timeout(5):
        while sidecar.gate.snapshot().waiting < 1:
            await asyncio.sleep(0.001)
    assert document(await client.ask(sidecar, "GET", "/sagesched/explain/one"))["phase"] == "running"
    waiting = document(await client.ask(sidecar, "GET", "/sagesched/explain/two"))
    assert (waiting["phase"], waiting["ahead"]) == ("waiting", 0)
    queue = await client.ask(sidecar, "GET", "/sagesched/queue")
    (row,) = document(queue)["rows"]
    assert (row["position"], row["request_id"], row["class"], row["model"]) == (1, "two", "default", "m")
    assert row["age_s"] > 0
    assert not row["starving"]
    assert SECRET.encode() not in queue.body
    go.set()
    await asyncio.gather(first, second)
    reply = await client.ask(sidecar, "GET", "/sagesched/explain/two")
    ended = document(reply)
    assert (ended["phase"], ended["ended"]["how"], ended["ended"]["output_tokens"]) == ("ended", "answered", 6)
    assert {"neighbours", "quantiles", "index", "rank", "levels"} <= set(ended)
    assert SECRET.encode() not in reply.body
    assert (await client.ask(sidecar, "GET", "/sagesched/explain/three")).status == 404


async def test_capacity_is_read_from_a_long_metrics_page(start, client, fakes):
    engine, sidecar = await start(lambda seen: fakes.Script([OK]), {"engine": {"metricsIntervalSeconds": 0.01}})
    counts = b'vllm:num_requests_running{engine="0"} 7\nvllm:num_requests_waiting{engine="0"} 2\n'
    size = b'vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1.0\n'
    engine.metrics = [counts, b"# padding\n" * 20_000, size]
    async with asyncio.timeout(5):
        while (now := sidecar.gate.snapshot()).slots is None or now.kv_tokens is None:
            await asyncio.sleep(0.001)
    assert (now.slots, now.kv_tokens) == (7, 1600)


async def test_status(start, client, fakes):
    _, sidecar = await start(lambda seen: fakes.Script([OK]), {"engine": {"slots": 3}})
    await client.ask(sidecar, "POST", "/v1/chat/completions", CHAT)
    status = document(await client.ask(sidecar, "GET", "/sagesched/status"))
    assert (status["policy"], status["gate"]["slots"], status["history_rows"]) == ("sagesched", 3, 1)


async def test_status_and_metrics_tell_how_good_predictions_are(start, client, fakes):
    _, sidecar = await start(lambda seen: fakes.Script([OK]))
    for _ in range(6):
        await client.ask(sidecar, "POST", "/v1/chat/completions", CHAT)
    found = document(await client.ask(sidecar, "GET", "/sagesched/status"))["calibration"]["m"]
    assert found["scored"] == 5, "all but the first, which no history came before"
    assert sum(found["pit_deciles"]) == pytest.approx(1)
    assert found["levels"]["global"]["skill"] == 0
    assert found["fallback"] is None
    metrics = await families(client, sidecar)
    assert {s.labels["level"] for s in metrics["sagesched_prediction_crps_tokens"].samples} == set(found["levels"])
    assert sum(
        s.value for s in metrics["sagesched_prediction_pit_bucket"].samples if s.name.endswith("_total")
    ) == pytest.approx(5)
    assert metrics["sagesched_fallback_active"].samples[0].value == 0


async def test_a_fallback_is_told_once_in_the_log_and_lasts_in_metrics_and_status(start, client, fakes, caplog):
    _, sidecar = await start(lambda seen: fakes.Script([OK]))
    await client.ask(sidecar, "POST", "/v1/chat/completions", CHAT)
    harm = Score((0.1,) * 10, {"global": 100.0, MIXTURE: 500.0})
    for _ in range(MIN_SCORED - 1):
        sidecar.gate.ranking.scoreboard.add("m", harm)
    with caplog.at_level("WARNING"):
        for _ in range(3):
            await client.ask(sidecar, "POST", "/v1/chat/completions", CHAT, "X-Request-Id: last")
    told = [record for record in caplog.records if "neighbours" in record.message]
    assert [(record.model, record.used) for record in told] == [("m", "global")]
    explained = document(await client.ask(sidecar, "GET", "/sagesched/explain/last"))
    assert (explained["alone"], explained["source"]) == ("global", "global")
    assert document(await client.ask(sidecar, "GET", "/sagesched/status"))["calibration"]["m"]["fallback"] == "global"
    metrics = await families(client, sidecar)
    assert metrics["sagesched_fallback_active"].samples[0].value == 1
    assert metrics["sagesched_prediction_level_alone"].samples[0].labels == {"model": "m", "level": "global"}


async def test_explanations_are_for_loopback_clients(start, client, fakes, monkeypatch):
    _, sidecar = await start(lambda seen: fakes.Script([OK]))
    monkeypatch.setattr("sagesched_sidecar.admin._is_loopback", lambda request: False)
    for path in ("/sagesched/status", "/sagesched/queue", "/sagesched/explain/x"):
        assert (await client.ask(sidecar, "GET", path)).status == 403
    assert (await client.ask(sidecar, "GET", "/healthz")).status == 200
    _, opened = await start(lambda seen: fakes.Script([OK]), {"server": {"explainToAll": True}})
    assert (await client.ask(opened, "GET", "/sagesched/status")).status == 200


async def test_the_queue_is_told_in_order_and_bounded(start, client, fakes):
    go = asyncio.Event()
    _, sidecar = await start(
        lambda seen: fakes.Script([OK], gate=go), {"engine": {"slots": 1}, "scheduling": {"policy": "fcfs"}}
    )
    asks = []
    for n in range(6):
        asks.append(
            asyncio.ensure_future(client.ask(sidecar, "POST", "/v1/chat/completions", CHAT, f"X-Request-Id: r{n}"))
        )
        async with asyncio.timeout(5):
            while len(sidecar.gate.ranking.tickets()) <= n:
                await asyncio.sleep(0.001)
    told = document(await client.ask(sidecar, "GET", "/sagesched/queue?limit=3"))
    assert told["waiting"] == 5
    assert [(row["position"], row["request_id"]) for row in told["rows"]] == [(1, "r1"), (2, "r2"), (3, "r3")]
    for wrong in ("0", "1001", "x", "", "9" * 5000):
        assert (await client.ask(sidecar, "GET", f"/sagesched/queue?limit={wrong}")).status == 400
    go.set()
    await asyncio.gather(*asks)


async def test_metrics_parse_and_count(start, client, fakes):
    settings = {"scheduling": {"classes": [{"name": "batch", "priority": 5}]}}
    _, sidecar = await start(lambda seen: fakes.Script([OK]), settings)
    await client.ask(sidecar, "POST", "/v1/chat/completions", CHAT, "x-sagesched-class: batch")
    await client.ask(sidecar, "POST", "/v1/chat/completions", CHAT, "x-sagesched-class: nonsense")
    found = await families(client, sidecar)
    waits = {
        s.labels["class"]: s.value for s in found["sagesched_queue_wait_seconds"].samples if s.name.endswith("_count")
    }
    assert waits == {"batch": 1.0, "default": 1.0}
    for name in ("queue_depth", "queue_age_max_seconds", "dispatch", "rejected", "starvation_promotions", "config_info",
                 "prediction_neighbours", "prediction_pit_bucket", "prediction_abs_error_tokens", "history_points",
                 "proxy_overhead_seconds", "upstream_abort", "build_info", "prediction_skill", "prediction_crps_tokens",
                 "prediction_coverage", "prediction_pit_share", "prediction_scored", "fallback_active"):  # fmt: skip
        assert f"sagesched_{name}" in found
    spent = [found[f"sagesched_{kind}_tokens"].samples[0].value for kind in ("output", "prompt", "cached_prompt")]
    assert spent == [12.0, 80.0, 64.0]
    assert found["sagesched_unknown_class"].samples[0].value == 1.0
    assert found["sagesched_history_points"].samples[0].value == 2.0


async def test_classes_of_one_priority_are_counted_apart_and_empty_ones_too(start, client, fakes):
    classes = [{"name": "batch", "priority": 0, "weight": 0.5}, {"name": "gold", "priority": 0, "weight": 2}]
    _, sidecar = await start(lambda seen: fakes.Script([OK]), {"scheduling": {"classes": classes}})
    await client.ask(sidecar, "POST", "/v1/chat/completions", CHAT, "x-sagesched-class: batch")
    await client.ask(sidecar, "POST", "/v1/chat/completions", CHAT)
    found = await families(client, sidecar)
    waited = found["sagesched_queue_wait_seconds"].samples
    assert {s.labels["class"]: s.value for s in waited if s.name.endswith("_count")} == {"batch": 1.0, "default": 1.0}
    depth = {s.labels["class"]: s.value for s in found["sagesched_queue_depth"].samples}
    assert depth == {"default": 0.0, "batch": 0.0, "gold": 0.0}


async def test_the_prompt_estimate_learns_from_usage(start, client, fakes):
    engine, sidecar = await start(lambda seen: fakes.Script([OK], gate=go if seen.header("x-hold") else None))
    go = asyncio.Event()
    await client.ask(sidecar, "POST", "/v1/chat/completions", CHAT)
    held = asyncio.ensure_future(client.ask(sidecar, "POST", "/v1/chat/completions", CHAT, "X-Hold: 1"))
    await engine.request(1)
    (held_ticket,) = sidecar.gate.ranking.tickets()
    assert held_ticket.request.prompt_tokens == pytest.approx(40, rel=0.1)
    go.set()
    await held


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/metrics", "/sagesched/status"])
async def test_own_paths_never_reach_the_engine(start, client, fakes, path):
    engine, sidecar = await start(lambda seen: fakes.Script([OK]))
    await client.ask(sidecar, "GET", path)
    assert engine.seen == []
