"""Where each API keeps what the scheduler needs; whatever JSON comes, nothing raises."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagesched_sidecar.surfaces import MAX_NAME_CHARACTERS, SURFACES, Usage

CHAT, COMPLETIONS, RESPONSES, MESSAGES = (
    SURFACES[f"/v1/{name}"] for name in ("chat/completions", "completions", "responses", "messages")
)
NAMES = [
    "messages",
    "content",
    "prompt",
    "input",
    "usage",
    "choices",
    "response",
    "message",
    "delta",
    "n",
    "tools",
    "error",
    "max_tokens",
    "reasoning",
    "output_config",
    "thinking",
    "stop_reason",
    "finish_reason",
    "status",
    "text",
    "type",
    "system",
    "prompt_tokens",
    "completion_tokens",
    "input_tokens",
    "output_tokens",
]
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4)
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=4),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(st.sampled_from(NAMES), JSON, max_size=6)


@given(st.sampled_from(list(SURFACES.values())), DOCUMENTS)
def test_any_document_is_tolerated(surface, document):
    ask = surface.ask(document)
    assert ask.choices >= 1
    assert ask.max_tokens is None or ask.max_tokens >= 0
    usage = surface.usage(document)
    assert usage is None or all(count is None or count >= 0 for count in usage)
    assert surface.cut(document) in (None, True, False)
    assert surface.failed(document) in (True, False)


def test_chat():
    ask = CHAT.ask(
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "be brief"},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "what is this"},
                        {"type": "image_url", "image_url": {"url": "data:"}},
                    ],
                },
            ],
            "max_tokens": 5,
            "max_completion_tokens": 7,
            "n": 3,
            "reasoning_effort": "high",
            "tools": [{}],
        }
    )
    assert (ask.prompt, ask.max_tokens, ask.choices, ask.effort, ask.tools) == (
        "be brief\nwhat is this",
        7,
        3,
        "high",
        True,
    )


@pytest.mark.parametrize(
    ("prompt", "text", "tokens", "choices"),
    [
        ("a b", "a b", None, 2),
        (["a", "b"], "a\nb", None, 4),
        ([1, 2, 3], "", 3, 2),
        ([[1, 2], [3]], "", 3, 4),
    ],
)
def test_completions(prompt, text, tokens, choices):
    ask = COMPLETIONS.ask({"prompt": prompt, "n": 2})
    assert (ask.prompt, ask.prompt_tokens, ask.choices) == (text, tokens, choices)


def test_responses():
    parts = [{"type": "input_text", "text": "hi"}, {"type": "input_image"}]
    ask = RESPONSES.ask(
        {
            "instructions": "be",
            "input": [{"role": "user", "content": parts}],
            "max_output_tokens": 9,
            "reasoning": {"effort": "low"},
        }
    )
    assert (ask.prompt, ask.max_tokens, ask.effort) == ("be\nhi", 9, "low")
    assert RESPONSES.ask({"input": "text"}).prompt == "text"


def test_messages():
    content = [{"type": "text", "text": "hi"}, {"type": "tool_result", "content": [{"type": "text", "text": "42"}]}]
    ask = MESSAGES.ask(
        {"system": [{"type": "text", "text": "be"}], "messages": [{"content": content}], "max_tokens": 3}
    )
    assert (ask.prompt, ask.max_tokens) == ("be\nhi\n42", 3)


@pytest.mark.parametrize(
    ("surface", "document", "usage", "cut"),
    [
        (
            CHAT,
            {"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": 1, "completion_tokens": 2}},
            (1, 2),
            False,
        ),
        (CHAT, {"choices": [{"finish_reason": "stop"}, {"finish_reason": "length"}]}, None, True),
        (CHAT, {"choices": [{"finish_reason": None}], "usage": None}, None, None),
        (CHAT, {"choices": [{"finish_reason": "tool_calls"}]}, None, False),
        (CHAT, {"choices": [{"finish_reason": "abort"}]}, None, True),
        (COMPLETIONS, {"choices": [{"finish_reason": "error"}]}, None, True),
        (CHAT, {"choices": [{"finish_reason": "content_filter"}]}, None, True),
        (RESPONSES, {"status": "cancelled", "usage": {"output_tokens": 2}}, (None, 2), True),
        (MESSAGES, {"stop_reason": "model_context_window_exceeded"}, None, True),
        (MESSAGES, {"stop_reason": "tool_use"}, None, False),
        (
            COMPLETIONS,
            {"choices": [{"finish_reason": "length"}], "usage": {"completion_tokens": True}},
            (None, None),
            True,
        ),
        (RESPONSES, {"status": "completed", "usage": {"input_tokens": 1, "output_tokens": 2}}, (1, 2), False),
        (
            RESPONSES,
            {"type": "x", "response": {"status": "incomplete", "usage": {"output_tokens": 2}}},
            (None, 2),
            True,
        ),
        (RESPONSES, {"type": "x", "response": {"status": "in_progress", "usage": None}}, None, None),
        (
            MESSAGES,
            {"stop_reason": "end_turn", "usage": {"input_tokens": 1, "output_tokens": 2, "cache_read_input_tokens": 5}},
            (6, 2, 5),
            False,
        ),
        (
            MESSAGES,
            {
                "type": "message_start",
                "message": {"stop_reason": None, "usage": {"input_tokens": 4, "output_tokens": 1}},
            },
            (4, 1),
            None,
        ),
        (
            MESSAGES,
            {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 8}},
            (None, 8),
            True,
        ),
    ],
)
def test_usage_and_how_it_ended(surface, document, usage, cut):
    assert surface.usage(document) == (None if usage is None else Usage(*usage))
    assert surface.cut(document) is cut


@pytest.mark.parametrize("surface", [CHAT, COMPLETIONS, RESPONSES, MESSAGES])
def test_names_that_are_kept_are_short(surface):
    long = "x" * 100_000
    ask = surface.ask(
        {"model": long, "reasoning_effort": long, "reasoning": {"effort": long}, "thinking": {"type": long}}
    )
    assert max(len(ask.model), len(ask.effort)) <= MAX_NAME_CHARACTERS


def test_a_later_usage_is_filled_up_by_an_earlier_one():
    assert Usage(None, 8).over(Usage(4, 1)) == Usage(4, 8)
