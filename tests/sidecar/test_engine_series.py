"""The engine's series on the sidecar's page: what waits here and there is one number."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from sagesched_sidecar.engine_series import MAX_SERIES, WAITING, families, read_series

PAGE = """# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="a\\",b"} 2.0
vllm:num_requests_waiting{engine="1",model_name="m"} 3.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 2.0
vllm:num_requests_running{engine="0",model_name="m"} 4.0
vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25
vllm:cache_config_info{block_size="16",num_gpu_blocks="100"} 1.0
vllm:lora_requests_info{max_lora="4",running_lora_adapters="x,y",waiting_lora_adapters=""} 1.7e9
vllm:prompt_tokens_total{engine="0"} 9.0
"""


def exported(text, waiting_here):
    return {family.name: {sample.labels.get("engine"): sample.value for sample in family.samples}
            for family in families(read_series(text), waiting_here)}  # fmt: skip


def test_what_waits_here_is_added_once():
    out = exported(PAGE, 7)
    assert out[WAITING] == {"0": 9.0, "1": 3.0}
    assert out["vllm:num_requests_running"] == {"0": 4.0}
    assert out["vllm:kv_cache_usage_perc"] == {"0": 0.25}
    assert set(out) == {
        WAITING, "vllm:num_requests_running", "vllm:kv_cache_usage_perc", "vllm:cache_config_info",
        "vllm:lora_requests_info",
    }  # fmt: skip


def test_labels_stay_as_they_are():
    labels = {series.labels["model_name"] for series in read_series(PAGE) if series.name == WAITING}
    assert labels == {'a",b', "m"}


@given(st.text(max_size=200))
def test_any_page_is_read(text):
    for line in (text, WAITING + text, WAITING + "{" + text):
        list(families(read_series(line), 1))


def test_what_is_shown_is_bounded():
    many = "".join(f'{WAITING}{{engine="{k}"}} 1.0\n' for k in range(500))
    assert len(read_series(many)) == MAX_SERIES
    assert read_series(f'{WAITING}{{engine="{"x" * 5000}"}} 1.0\n') == ()


async def test_they_are_on_the_page_while_the_engine_is_there(start, client, fakes):
    holds = asyncio.Event()
    ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    settings = {"engine": {"slots": 1, "metricsIntervalSeconds": 0.02}}
    engine, sidecar = await start(lambda seen: fakes.Script([ok], gate=holds), settings)
    engine.metrics = [PAGE.encode()]
    asked = [asyncio.create_task(client.ask(sidecar, "POST", "/v1/completions", b'{"prompt": "x"}')) for _ in range(3)]

    async def value(name):
        page = (await client.ask(sidecar, "GET", "/metrics")).body.decode()
        found = {family.name: family.samples for family in text_string_to_metric_families(page)}
        return found[name][0].value if name in found else None

    while await value(WAITING) != 4.0 or sidecar.gate.snapshot().waiting < 2:
        await asyncio.sleep(0.02)
    assert await value("sagesched_predicted_waiting_tokens") > 0
    holds.set()
    await asyncio.gather(*asked)
    await engine.stop()
    while await value(WAITING) is not None:
        await asyncio.sleep(0.02)
