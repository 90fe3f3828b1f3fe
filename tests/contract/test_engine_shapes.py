"""The shapes of an engine's answers, one table for both engines: the simulated one, and vLLM 0.32 in the tier `engine`.

A shape is the set of paths of a JSON value, such as `choices[].delta.content`. Values are not compared; a path whose
value is null or an empty list is a path all the same.
"""

import json
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
SAID = [{"role": "user", "content": "Tell me about the sea, please."}]


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())


USAGE = words("usage.prompt_tokens usage.total_tokens usage.completion_tokens")
CHUNK = words("id object created model choices[].index choices[].logprobs choices[].finish_reason")
CHAT_CHUNK = CHUNK | words("choices[].delta.content choices[].token_ids")
LAST_CHAT_CHUNK = CHAT_CHUNK | words("choices[].stop_reason")
ROLE_CHUNK = CHUNK | words("choices[].delta.role choices[].delta.content prompt_token_ids prompt_text")
CONTINUOUS = USAGE | words("usage.completion_tokens_details")
USAGE_CHUNK = words("id object created model choices system_fingerprint") | USAGE
TEXT_CHUNK = CHUNK | words("choices[].text choices[].stop_reason choices[].prompt_token_ids choices[].token_ids")
FINGERPRINT = words("system_fingerprint")
DETAILS = words("usage.prompt_tokens_details usage.completion_tokens_details")
ERROR = words("error.message error.type error.param error.code")
WHOLE = (
    words("id object created model service_tier system_fingerprint kv_transfer_params ec_transfer_params metrics")
    | words("choices[].index choices[].logprobs choices[].finish_reason choices[].stop_reason choices[].token_ids")
    | words("choices[].routed_experts")
    | USAGE
    | DETAILS
)
WHOLE_CHAT = (
    WHOLE
    | words("prompt_logprobs prompt_token_ids prompt_text choices[].message.role choices[].message.content")
    | words("choices[].message.refusal choices[].message.annotations choices[].message.audio")
    | words("choices[].message.function_call choices[].message.reasoning")
)
WHOLE_TEXT = WHOLE | words("choices[].text choices[].prompt_logprobs choices[].prompt_token_ids")
RESPONSE_HEAD = words(
    """id created_at incomplete_details instructions metadata model object parallel_tool_calls temperature tool_choice
    tools top_p background max_output_tokens max_tool_calls previous_response_id prompt reasoning service_tier status
    text top_logprobs truncation user presence_penalty frequency_penalty kv_transfer_params ec_transfer_params
    input_messages output_messages"""
)
ITEM = words("id role status type phase")
PART = words("annotations text type logprobs")
RESPONSE_USAGE = words(
    """input_tokens input_tokens_details.cached_tokens input_tokens_details.cache_write_tokens
    input_tokens_details.input_tokens_per_turn input_tokens_details.cached_tokens_per_turn output_tokens
    output_tokens_details.reasoning_tokens output_tokens_details.tool_output_tokens
    output_tokens_details.output_tokens_per_turn output_tokens_details.tool_output_tokens_per_turn total_tokens"""
)


def under(prefix: str, paths: frozenset[str]) -> frozenset[str]:
    return frozenset(prefix + path for path in paths)


WHOLE_ITEM = ITEM | under("content[].", PART)
WHOLE_RESPONSE = RESPONSE_HEAD | under("output[].", WHOLE_ITEM) | under("usage.", RESPONSE_USAGE)
STARTED_RESPONSE = RESPONSE_HEAD | words("output usage")
NUMBERED = words("type sequence_number")
AT = words("item_id output_index content_index")
MESSAGE_USAGE = words("usage.input_tokens usage.output_tokens")

WHOLES = [
    (CHAT, {"messages": SAID, "max_tokens": 4}, 200, WHOLE_CHAT),
    (COMPLETIONS, {"prompt": "The sea", "max_tokens": 4}, 200, WHOLE_TEXT),
    (RESPONSES, {"input": "The sea", "max_output_tokens": 4}, 200, WHOLE_RESPONSE | {"incomplete_details.reason"}),
    (
        MESSAGES,
        {"messages": SAID, "max_tokens": 4},
        200,
        words("id type role content[].type content[].text model stop_reason") | MESSAGE_USAGE,
    ),
    (CHAT, {"messages": SAID, "model": "no-such-model"}, 404, ERROR),
    (CHAT, {"messages": SAID, "max_tokens": "four"}, 400, ERROR),
    (COMPLETIONS, {"prompt": "The sea " * 200_000, "max_tokens": 4}, 400, ERROR),
    (RESPONSES, {"input": "The sea", "model": "no-such-model"}, 404, ERROR),
    (
        MESSAGES,
        {"messages": SAID, "max_tokens": 4, "model": "no-such-model"},
        404,
        words("type error.type error.message"),
    ),
    ("/tokenize", {"prompt": "The sea"}, 200, words("count max_model_len tokens[] token_strs")),
    (
        "/v1/messages/count_tokens",
        {"messages": SAID},
        200,
        words("input_tokens context_management.original_input_tokens"),
    ),
]

# Streams: the events in their order, a repeated one once.
STREAMS = [
    (
        CHAT,
        {"messages": SAID, "max_tokens": 4, "stream": True},
        [("", ROLE_CHUNK), ("", CHAT_CHUNK), ("", LAST_CHAT_CHUNK | FINGERPRINT), ("", None)],
    ),
    (
        CHAT,
        {"messages": SAID, "max_tokens": 4, "stream": True, "stream_options": {"include_usage": True}},
        [("", ROLE_CHUNK), ("", CHAT_CHUNK), ("", LAST_CHAT_CHUNK), ("", USAGE_CHUNK), ("", None)],
    ),
    (
        CHAT,
        {
            "messages": SAID,
            "max_tokens": 4,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        },
        [
            ("", ROLE_CHUNK | CONTINUOUS),
            ("", CHAT_CHUNK | CONTINUOUS),
            ("", LAST_CHAT_CHUNK | CONTINUOUS),
            ("", USAGE_CHUNK),
            ("", None),
        ],
    ),
    (
        COMPLETIONS,
        {"prompt": "The sea", "max_tokens": 4, "stream": True},
        [("", TEXT_CHUNK), ("", TEXT_CHUNK | FINGERPRINT), ("", None)],
    ),
    (
        COMPLETIONS,
        {"prompt": "The sea", "max_tokens": 4, "stream": True, "stream_options": {"include_usage": True}},
        [("", TEXT_CHUNK), ("", USAGE_CHUNK), ("", None)],
    ),
    (
        COMPLETIONS,
        {
            "prompt": "The sea",
            "max_tokens": 4,
            "stream": True,
            "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        },
        [("", TEXT_CHUNK | USAGE), ("", USAGE_CHUNK), ("", None)],
    ),
    (
        RESPONSES,
        {"input": "The sea", "max_output_tokens": 4, "stream": True},
        [
            ("response.created", NUMBERED | under("response.", STARTED_RESPONSE)),
            ("response.in_progress", NUMBERED | under("response.", STARTED_RESPONSE)),
            ("response.output_item.added", NUMBERED | {"output_index"} | under("item.", ITEM | {"content"})),
            ("response.content_part.added", NUMBERED | AT | under("part.", PART)),
            ("response.output_text.delta", NUMBERED | AT | words("delta logprobs")),
            ("response.output_text.done", NUMBERED | AT | words("text logprobs")),
            ("response.content_part.done", NUMBERED | AT | under("part.", PART)),
            ("response.output_item.done", NUMBERED | {"output_index"} | under("item.", WHOLE_ITEM)),
            (
                "response.completed",
                NUMBERED | under("response.", WHOLE_RESPONSE | {"incomplete_details.reason"}),
            ),
        ],
    ),
    (
        MESSAGES,
        {"messages": SAID, "max_tokens": 4, "stream": True},
        [
            (
                "message_start",
                {"type"}
                | under("message.", words("id type role content model stop_reason stop_sequence") | MESSAGE_USAGE),
            ),
            ("content_block_start", words("type index content_block.type content_block.text")),
            ("content_block_delta", words("type index delta.type delta.text")),
            ("content_block_stop", words("type index")),
            ("message_delta", words("type delta.stop_reason delta.stop_sequence") | MESSAGE_USAGE),
            ("message_stop", words("type")),
        ],
    ),
]

COUNTERS = words(
    "vllm:num_preemptions_total vllm:prompt_tokens_total vllm:generation_tokens_total vllm:request_success_total "
    "vllm:prefix_cache_queries_total vllm:prefix_cache_hits_total vllm:prompt_tokens_by_source_total "
    "vllm:prompt_tokens_cached_total vllm:external_prefix_cache_queries_total vllm:external_prefix_cache_hits_total "
    "vllm:mm_cache_queries_total vllm:mm_cache_hits_total"
)
GAUGES = words(
    "vllm:num_requests_running vllm:num_requests_waiting vllm:num_requests_waiting_by_reason vllm:kv_cache_usage_perc "
    "vllm:engine_sleep_state"
)
HISTOGRAMS = words(
    """request_prompt_tokens request_generation_tokens iteration_tokens_total request_max_num_generation_tokens
    request_params_n request_params_max_tokens time_to_first_token_seconds inter_token_latency_seconds
    request_time_per_output_token_seconds e2e_request_latency_seconds request_queue_time_seconds
    request_inference_time_seconds request_prefill_time_seconds request_decode_time_seconds request_num_preemptions
    request_prefill_kv_computed_tokens"""
)


def paths(value: Any, prefix: str = "") -> frozenset[str]:
    """The paths of a JSON value's leaves; an empty list or object is a leaf."""
    if isinstance(value, dict) and value:
        parts = (paths(inner, f"{prefix}.{key}" if prefix else key) for key, inner in value.items())
        return frozenset().union(*parts)
    if isinstance(value, list) and value:
        return frozenset().union(*(paths(inner, f"{prefix}[]") for inner in value))
    return frozenset({prefix})


def without_null_parents(found: frozenset[str], expected: frozenset[str]) -> frozenset[str]:
    """A path that is null in one answer and an object in the next: the object's paths stand for it."""
    return frozenset(path for path in expected if path in found or not any(one.startswith(f"{path}.") for one in found))


@pytest.fixture
async def client() -> Any:
    async with aiohttp.ClientSession() as session:
        yield session


async def served_model(client: aiohttp.ClientSession, engine_url: str) -> str:
    async with client.get(f"{engine_url}/v1/models") as answer:
        return str((await answer.json())["data"][0]["id"])


@pytest.mark.parametrize(("path", "body", "status", "expected"), WHOLES)
async def test_whole_answers(
    client: Any, engine_url: str, path: str, body: dict[str, Any], status: int, expected: frozenset[str]
) -> None:
    body = {"model": await served_model(client, engine_url), "temperature": 0} | body
    async with client.post(engine_url + path, json=body) as answer:
        found = paths(await answer.json())
    assert (answer.status, answer.content_type) == (status, "application/json")
    assert found == without_null_parents(found, expected)


@pytest.mark.parametrize(("path", "body", "expected"), STREAMS)
async def test_streams(
    client: Any, engine_url: str, path: str, body: dict[str, Any], expected: list[tuple[str, frozenset[str] | None]]
) -> None:
    body = {"model": await served_model(client, engine_url), "temperature": 0, "ignore_eos": True} | body
    async with client.post(engine_url + path, json=body) as answer:
        raw = await answer.read()
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream; charset=utf-8")
    found: list[tuple[str, frozenset[str] | None]] = []
    for event in raw.decode().removesuffix("\n\n").split("\n\n"):
        name, data = split_event(event)
        shape = (name, None if data == "[DONE]" else paths(json.loads(data)))
        if shape not in found[-1:]:
            found.append(shape)
    assert [name for name, _ in found] == [name for name, _ in expected]
    for (_, one), (name, shape) in zip(found, expected, strict=True):
        assert one == (shape if one is None or shape is None else without_null_parents(one, shape)), name


def split_event(event: str) -> tuple[str, str]:
    """(event name or empty, data) of one event; nothing else may stand in it."""
    lines = event.split("\n")
    name = lines.pop(0).removeprefix("event: ") if lines[0].startswith("event: ") else ""
    assert len(lines) == 1
    assert lines[0].startswith("data: ")
    return name, lines[0].removeprefix("data: ")


ERRORS = [
    ("GET", "/nowhere", b"", 404),
    ("GET", CHAT, b"", 405),
    ("POST", CHAT, b"{", 400),
    ("POST", CHAT, b"[]", 400),
    ("POST", CHAT, b'{"messages": []}', 400),
    ("POST", COMPLETIONS, b'{"prompt": "x", "max_tokens": -1}', 400),
    ("POST", COMPLETIONS, b'{"prompt": "x", "vllm_xargs": {"a": {"b": 1}}}', 400),
    ("POST", COMPLETIONS, b'{"prompt": "x", "priority": "high"}', 400),
    ("POST", MESSAGES, b'{"messages": []}', 400),
    ("POST", RESPONSES, b'{"max_output_tokens": 4}', 400),
]


@pytest.mark.parametrize(("method", "path", "body", "status"), ERRORS)
async def test_errors(client: Any, engine_url: str, method: str, path: str, body: bytes, status: int) -> None:
    headers = {"Content-Type": "application/json"}
    async with client.request(method, engine_url + path, data=body or None, headers=headers) as answer:
        assert (answer.status, answer.content_type) == (status, "application/json")
        found = paths(await answer.json())
    assert found == (words("detail") if status in (404, 405) else ERROR)


@pytest.mark.parametrize("stream", [False, True])
async def test_headers(client: Any, engine_url: str, stream: bool) -> None:
    body = {"model": await served_model(client, engine_url), "prompt": "The sea", "max_tokens": 2, "stream": stream}
    async with client.post(engine_url + COMPLETIONS, json=body) as answer:
        found = {name.lower() for name in answer.headers}
    assert found == words("date server vary content-type") | {"transfer-encoding" if stream else "content-length"}


async def test_pages(client: Any, engine_url: str) -> None:
    async with client.get(f"{engine_url}/health") as answer:
        assert (answer.status, await answer.read()) == (200, b"")
    async with client.get(f"{engine_url}/version") as answer:
        assert paths(await answer.json()) == {"version"}
    async with client.get(f"{engine_url}/v1/models") as answer:
        found = paths(await answer.json())
    card = words("id object created owned_by root parent max_model_len")
    permission = words(
        """id object created allow_create_engine allow_sampling allow_logprobs allow_search_indices allow_view
        allow_fine_tuning organization group is_blocking"""
    )
    assert found == {"object"} | under("data[].", card) | under("data[].permission[].", permission)


async def test_metrics(client: Any, engine_url: str) -> None:
    async with client.get(f"{engine_url}/metrics") as answer:
        assert answer.content_type == "text/plain"
        families = list(text_string_to_metric_families(await answer.text()))
    samples = {sample.name: sample.labels for family in families for sample in family.samples}
    wanted = COUNTERS | GAUGES | {f"vllm:{name}_{part}" for name in HISTOGRAMS for part in ("bucket", "count", "sum")}
    assert wanted <= set(samples)
    assert all({"model_name", "engine"} <= set(samples[name]) for name in wanted)
    assert {"block_size", "num_gpu_blocks", "kv_cache_size_tokens", "engine"} <= set(samples["vllm:cache_config_info"])
    assert "finished_reason" in samples["vllm:request_success_total"]


@pytest.mark.parametrize(("path", "prefix"), [(CHAT, "chatcmpl-"), (COMPLETIONS, "cmpl-"), (MESSAGES, "chatcmpl-")])
async def test_the_request_id_is_the_answers_id(client: Any, engine_url: str, path: str, prefix: str) -> None:
    body: dict[str, Any] = {"model": await served_model(client, engine_url), "max_tokens": 2}
    body |= {"prompt": "The sea"} if path == COMPLETIONS else {"messages": SAID}
    async with client.post(engine_url + path, json=body, headers={"X-Request-Id": "abc-7"}) as answer:
        assert (await answer.json())["id"] == f"{prefix}abc-7"
