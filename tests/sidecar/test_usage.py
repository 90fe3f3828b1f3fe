"""What answers say of themselves, as vLLM 0.32, OpenAI and Anthropic write it, whole and in streams, however cut."""

import json
from typing import NamedTuple

import pytest

from sagesched_sidecar.meter import Meter
from sagesched_sidecar.streams import FullBody, StrippedEvents, WatchedEvents
from sagesched_sidecar.surfaces import SURFACES, Usage

CHAT, COMPLETIONS, RESPONSES, MESSAGES = (
    f"/v1/{name}" for name in ("chat/completions", "completions", "responses", "messages")
)


class Case(NamedTuple):
    """An answer, and what is to be read from it. `counted`: by events alone, without usage."""

    name: str
    path: str
    choices: int
    answer: list[dict[str, object]] | dict[str, object]
    """Events, or a whole body."""
    usage: Usage | None
    output_tokens: int
    """Of one choice."""
    cut: bool | None


def chunk(*choices: dict[str, object], **more: object) -> dict[str, object]:
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": list(choices), **more}


def delta(index: int = 0, end: str | None = None, **said: object) -> dict[str, object]:
    return {"index": index, "delta": said, "logprobs": None, "finish_reason": end}


def called(arguments: str, **first: object) -> dict[str, object]:
    return {"tool_calls": [{"index": 0, **first, "function": {"arguments": arguments}}]}


def event(kind: str, **fields: object) -> dict[str, object]:
    return {"type": kind, **fields}


VLLM_DETAILS = {"cached_tokens": 64, "created_cache_tokens": None, "multimodal_tokens": None}
CASES = [
    Case(
        "vLLM, chat, whole: null details",
        CHAT,
        1,
        {
            "choices": [{"index": 0, "message": {"content": "hi", "reasoning": None}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 9, "total_tokens": 14, "completion_tokens": 5, "prompt_tokens_details": None},
        },
        Usage(9, 5),
        5,
        False,
    ),
    Case(
        "vLLM, chat, whole: two choices, one of them cut, prefix cached",
        CHAT,
        2,
        {
            "choices": [{"index": 0, "finish_reason": "stop"}, {"index": 1, "finish_reason": "length"}],
            "usage": {"prompt_tokens": 90, "completion_tokens": 31, "prompt_tokens_details": VLLM_DETAILS},
        },
        Usage(90, 31, 64),
        16,
        True,
    ),
    Case(
        "OpenAI, chat, whole: reasoning is output",
        CHAT,
        1,
        {
            "choices": [{"index": 0, "message": {"content": "4"}, "finish_reason": "stop"}],
            "usage": {
                "prompt_tokens": 20,
                "completion_tokens": 300,
                "total_tokens": 320,
                "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 290, "accepted_prediction_tokens": 0},
            },
        },
        Usage(20, 300, 0),
        300,
        False,
    ),
    Case(
        "vLLM, chat, whole: looped until it was stopped",
        CHAT,
        1,
        {"choices": [{"finish_reason": "repetition"}], "usage": {"prompt_tokens": 2, "completion_tokens": 80}},
        Usage(2, 80),
        80,
        True,
    ),
    Case(
        "vLLM, chat, stream: reasoning, then text, usage at the end",
        CHAT,
        1,
        [
            chunk(delta(role="assistant", content="")),
            chunk(delta(reasoning="so")),
            chunk(delta(reasoning_content="so")),
            chunk(delta(content="hi")),
            chunk(delta(content="", end="stop")),
            chunk(usage={"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": VLLM_DETAILS}),
        ],
        Usage(9, 4, 64),
        4,
        False,
    ),
    Case(
        "vLLM, chat, stream: a tool call has no text and is counted",
        CHAT,
        1,
        [
            chunk(delta(role="assistant", content="")),
            chunk(delta(**called("", id="call_1", type="function"))),
            *(chunk(delta(**called(part))) for part in ('{"city"', ": ", '"Rome', '"}')),
            chunk(delta(end="tool_calls")),
        ],
        None,
        8,
        False,
    ),
    Case(
        "vLLM, chat, stream: continuous usage is one choice's, the last one all of them's",
        CHAT,
        2,
        [
            chunk(delta(0, content="a"), usage={"prompt_tokens": 7, "completion_tokens": 1}),
            chunk(delta(1, content="b"), usage={"prompt_tokens": 7, "completion_tokens": 1}),
            chunk(delta(0, end="stop", content="c"), usage={"prompt_tokens": 7, "completion_tokens": 2}),
            chunk(delta(1, end="stop", content="d"), usage={"prompt_tokens": 7, "completion_tokens": 2}),
            chunk(usage={"prompt_tokens": 7, "completion_tokens": 4}),
        ],
        Usage(7, 4),
        2,
        False,
    ),
    Case(
        "OpenAI, chat, stream: usage is null until the end",
        CHAT,
        1,
        [
            chunk(delta(content="a"), usage=None),
            chunk(delta(end="length"), usage=None),
            chunk(usage={"prompt_tokens": 7, "completion_tokens": 40, "prompt_tokens_details": {"cached_tokens": 4}}),
        ],
        Usage(7, 40, 4),
        40,
        True,
    ),
    Case(
        "vLLM, completions, whole: two prompts, two choices each",
        COMPLETIONS,
        4,
        {
            "choices": [{"index": n, "text": "x", "finish_reason": "stop"} for n in range(4)],
            "usage": {"prompt_tokens": 12, "completion_tokens": 40, "prompt_tokens_details": {"cached_tokens": 8}},
        },
        Usage(12, 40, 8),
        10,
        False,
    ),
    Case(
        "vLLM, completions, stream",
        COMPLETIONS,
        1,
        [
            {"object": "text_completion", "choices": [{"index": 0, "text": "a", "finish_reason": None}]},
            {"object": "text_completion", "choices": [{"index": 0, "text": "b", "finish_reason": "length"}]},
            {"object": "text_completion", "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}},
        ],
        Usage(3, 2),
        2,
        True,
    ),
    Case(
        "vLLM, responses, whole: reasoning and a cached prefix",
        RESPONSES,
        1,
        {
            "object": "response",
            "status": "completed",
            "error": None,
            "incomplete_details": None,
            "output": [{"type": "reasoning"}, {"type": "function_call", "arguments": "{}"}],
            "usage": {
                "input_tokens": 80,
                "input_tokens_details": {"cached_tokens": 64, "cache_write_tokens": 0, "input_tokens_per_turn": []},
                "output_tokens": 50,
                "output_tokens_details": {"reasoning_tokens": 30, "tool_output_tokens": 0},
                "total_tokens": 130,
            },
        },
        Usage(80, 50, 64),
        50,
        False,
    ),
    Case(
        "OpenAI, responses, stream: reasoning, text and arguments are output; a cap ends it",
        RESPONSES,
        1,
        [
            event("response.created", response={"status": "in_progress", "usage": None, "error": None}),
            event("response.reasoning_text.delta", delta="so"),
            event("response.output_text.delta", delta="hi"),
            event("response.function_call_arguments.delta", delta="{"),
            event(
                "response.incomplete",
                response={
                    "status": "incomplete",
                    "error": None,
                    "incomplete_details": {"reason": "max_output_tokens"},
                    "usage": {
                        "input_tokens": 5,
                        "output_tokens": 3,
                        "input_tokens_details": {"cached_tokens": 0},
                    },
                },
            ),
        ],
        Usage(5, 3, 0),
        3,
        True,
    ),
    Case(
        "vLLM, responses, stream: the last event is `completed` though a cap ended it",
        RESPONSES,
        1,
        [
            event("response.output_text.delta", delta="hi"),
            event(
                "response.completed",
                response={"status": "incomplete", "usage": {"input_tokens": 5, "output_tokens": 9}},
            ),
        ],
        Usage(5, 9),
        9,
        True,
    ),
    Case(
        "Anthropic, messages, whole: what the cache held comes beside the input",
        MESSAGES,
        1,
        {
            "type": "message",
            "content": [{"type": "thinking"}, {"type": "tool_use", "input": {}}],
            "stop_reason": "tool_use",
            "usage": {
                "input_tokens": 10,
                "cache_creation_input_tokens": 5,
                "cache_read_input_tokens": 85,
                "output_tokens": 70,
            },
        },
        Usage(100, 70, 85),
        70,
        False,
    ),
    Case(
        "vLLM, messages, whole: no details, no cache fields",
        MESSAGES,
        1,
        {"type": "message", "stop_reason": "max_tokens", "usage": {"input_tokens": 10, "output_tokens": 7}},
        Usage(10, 7),
        7,
        True,
    ),
    Case(
        "Anthropic, messages, stream: thinking, text, a tool's input; the last usage is the sum so far",
        MESSAGES,
        1,
        [
            event(
                "message_start",
                message={"stop_reason": None, "usage": {"input_tokens": 10, "cache_read_input_tokens": 90}},
            ),
            event("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "so"}),
            event("content_block_delta", index=1, delta={"type": "text_delta", "text": "hi"}),
            event("content_block_delta", index=2, delta={"type": "input_json_delta", "partial_json": "{}"}),
            event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 33}),
            event("message_stop"),
        ],
        Usage(100, 33, 90),
        33,
        False,
    ),
    Case(
        "vLLM, messages, stream: the input at first without the cache, then beside it",
        MESSAGES,
        1,
        [
            event("message_start", message={"usage": {"input_tokens": 100, "output_tokens": 0}}),
            event("content_block_delta", index=0, delta={"type": "text_delta", "text": "hi"}),
            event(
                "message_delta",
                delta={"stop_reason": "max_tokens", "stop_sequence": None},
                usage={"input_tokens": 36, "cache_read_input_tokens": 64, "output_tokens": 2},
            ),
        ],
        Usage(100, 2, 64),
        2,
        True,
    ),
    Case(
        "Anthropic, messages, whole: a turn that pauses would go on",
        MESSAGES,
        1,
        {"stop_reason": "pause_turn", "usage": {"input_tokens": 1, "output_tokens": 2}},
        Usage(1, 2),
        2,
        True,
    ),
]
STREAMS = [case for case in CASES if isinstance(case.answer, list)]


def wire(case: Case, *, space: bool = True) -> bytes:
    """The answer's bytes: compact as vLLM writes them, or with a space after each colon as OpenAI's edge does."""
    separators = (", ", ": ") if space else (",", ":")
    if isinstance(case.answer, dict):
        return json.dumps(case.answer, separators=separators).encode()
    named = case.path in (RESPONSES, MESSAGES)
    lines = []
    for one in case.answer:
        head = f"event: {one['type']}\n" if named else ""
        lines.append(f"{head}data: {json.dumps(one, separators=separators)}\n\n")
    return "".join([*lines, "" if named else "data: [DONE]\n\n"]).encode()


def read(case: Case, data: bytes, step: int, *, strips: bool) -> Meter:
    meter = Meter(SURFACES[case.path], case.choices)
    events = StrippedEvents(meter) if strips else WatchedEvents(meter)
    passage = FullBody(meter) if isinstance(case.answer, dict) else events
    for at in range(0, len(data), step):
        passage.feed(data[at : at + step])
    passage.close()
    return meter


@pytest.mark.parametrize("space", [False, True], ids=["compact", "spaced"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_usage_length_and_end_are_read(case: Case, space: bool) -> None:
    data = wire(case, space=space)
    for step in (len(data), 7):
        for strips in (False, True):
            meter = read(case, data, step, strips=strips)
            assert meter.usage == case.usage
            assert meter.cut is case.cut
            assert not meter.failed
            if case.usage is not None or step == len(data):
                assert meter.output_tokens == case.output_tokens


@pytest.mark.parametrize("case", STREAMS, ids=[case.name for case in STREAMS])
def test_every_event_that_carries_output_is_progress(case: Case) -> None:
    """Text or none: reasoning and the arguments of a tool are tokens too. No more is counted than there are events."""
    meter = Meter(SURFACES[case.path], 1)
    data = wire(case)
    meter.count(data)
    carrying = [one for one in case.answer if "delta" in str(one.get("type", "")) or one.get("choices")]
    if case.path == MESSAGES:
        carrying = [one for one in carrying if one["type"] == "content_block_delta"]
    assert len(carrying) <= meter.events <= len(carrying) + 2


@pytest.mark.parametrize(
    ("path", "document"),
    [
        (CHAT, {"error": {"message": "no", "code": 500}}),
        (RESPONSES, {"type": "error", "code": "x"}),
        (RESPONSES, {"type": "response.failed", "response": {"status": "failed", "error": None, "usage": None}}),
        (MESSAGES, {"type": "error", "error": {"type": "overloaded_error"}}),
    ],
)
def test_an_answer_that_failed_is_known_as_failed(path: str, document: dict[str, object]) -> None:
    meter = Meter(SURFACES[path], 1)
    meter.read(document)
    assert meter.failed


def test_details_may_have_any_type() -> None:
    for details in (None, 3, [], {"cached_tokens": "many"}, {"cached_tokens": -1}, {}):
        document = {"usage": {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": details}}
        assert SURFACES[CHAT].usage(document) == Usage(3, 2)
