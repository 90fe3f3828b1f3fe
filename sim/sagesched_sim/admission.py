"""From what a client asks for to what the engine is given: checks, caps and true lengths. Pure."""

import msgspec

from sagesched_sim.lengths import TrueLengths
from sagesched_sim.surfaces.ask import Ask, BadRequest


class Wanted(msgspec.Struct, frozen=True):
    """One sequence that the engine is asked for."""

    prompt_tokens: int
    output_tokens: int
    """The true length."""
    max_tokens: int


def wanted_sequences(ask: Ask, lengths: TrueLengths, max_model_len: int) -> list[Wanted]:
    """The sequences of a request, prompt by prompt. Raises BadRequest as vLLM would, in its words."""
    _check_caps(ask, max_model_len)
    wanted = []
    for prompt in ask.prompts:
        room = max_model_len - prompt.tokens
        if room < 1:
            raise BadRequest(
                f"This model's maximum context length is {max_model_len} tokens. However, your prompt contains "
                f"{prompt.tokens} input tokens, which exceeds this limit even without any output tokens. "
                "Please reduce the length of the input prompt.",
                param="input_tokens",
            )
        max_tokens = room if ask.max_tokens is None else min(ask.max_tokens, room)
        for choice in range(ask.choices):
            if ask.ignore_eos:
                # One beyond the cap: the end of text never comes, so the cap ends it.
                output_tokens = max_tokens + 1
            else:
                output_tokens = max(lengths.of(prompt.text, choice, ask.scripted_tokens), ask.min_tokens)
            wanted.append(Wanted(prompt.tokens, output_tokens, max_tokens))
    return wanted


def _check_caps(ask: Ask, max_model_len: int) -> None:
    if ask.max_tokens is not None and ask.max_tokens > max_model_len:
        raise BadRequest(
            f"max_tokens={ask.max_tokens} cannot be greater than max_model_len={max_model_len}. "
            "Please request fewer output tokens.",
            param="max_tokens",
        )
    if ask.min_tokens < 0:
        raise BadRequest(f"min_tokens must be greater than or equal to 0, got {ask.min_tokens}.")
    if ask.max_tokens is not None and ask.min_tokens > ask.max_tokens:
        raise BadRequest(f"min_tokens must be less than or equal to max_tokens={ask.max_tokens}, got {ask.min_tokens}.")
