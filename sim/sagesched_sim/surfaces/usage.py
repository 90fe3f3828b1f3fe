"""Token counts as the OpenAI surfaces write them."""

from typing import Any

import msgspec

from sagesched_sim.surfaces.ask import Ask


def usage(prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    """`usage` without details, as vLLM writes it in streams."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
    }


def usage_with_details(prompt_tokens: int, completion_tokens: int) -> dict[str, Any]:
    """`usage` as vLLM writes it in whole answers: the details are there and null."""
    return usage(prompt_tokens, completion_tokens) | {"prompt_tokens_details": None, "completion_tokens_details": None}


def usage_json(prompt_tokens: int, completion_tokens: int, *, chat: bool) -> bytes:
    """`,"usage":{...}`, for the end of a chunk; chat's has a null beside the counts."""
    total_tokens = prompt_tokens + completion_tokens
    return b',"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d%s}' % (
        prompt_tokens,
        total_tokens,
        completion_tokens,
        b',"completion_tokens_details":null' if chat else b"",
    )


def end_of_stream(ask: Ask, envelope: dict[str, Any], completion_tokens: int, fingerprint: str | None) -> bytes:
    """The usage chunk of a stream where it was asked for, and the end mark."""
    if not ask.include_usage:
        return b"data: [DONE]\n\n"
    counts = usage(ask.prompt_tokens, completion_tokens)
    last = envelope | {"choices": [], "usage": counts, "system_fingerprint": fingerprint}
    return b"data: " + msgspec.json.encode(last) + b"\n\ndata: [DONE]\n\n"
