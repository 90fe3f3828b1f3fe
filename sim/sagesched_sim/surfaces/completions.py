"""/v1/completions, as vLLM 0.32 writes it."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from sagesched_sim.prompt import count_tokens
from sagesched_sim.surfaces.ask import (
    Ask,
    BadRequest,
    Piece,
    Prompt,
    Sampling,
    Stamp,
    StreamOptions,
    Text,
    openai_error,
    usage_asked_for,
)
from sagesched_sim.surfaces.usage import end_of_stream, usage_json, usage_with_details


class _Body(Sampling, frozen=True, kw_only=True):
    prompt: str | list[Any]
    n: Annotated[int, Meta(ge=1, le=128)] | None = 1
    max_tokens: Annotated[int, Meta(ge=1)] | None = 16
    stream_options: StreamOptions | None = None


def _prompts(prompt: str | list[Any]) -> list[Prompt]:
    """A text, a list of texts, a list of token ids or a list of these."""
    if isinstance(prompt, str):
        return [Prompt(count_tokens(prompt), prompt)]
    if prompt and all(isinstance(part, int) for part in prompt):
        return [Prompt(len(prompt), " ".join(map(str, prompt)))]
    if not prompt or not all(isinstance(part, str | list) and part for part in prompt):
        raise BadRequest("prompt must be a text, a list of texts, token ids or a list of token ids", param="prompt")
    return [one for part in prompt for one in _prompts(part)]


class CompletionsSurface:
    """Completions."""

    path = "/v1/completions"

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(_Body)

    def read(self, body: bytes) -> Ask:
        """Decodes a body. Raises BadRequest or msgspec.DecodeError."""
        asked = self._decoder.decode(body)
        include_usage, continuous_usage = usage_asked_for(asked.stream_options, stream=bool(asked.stream))
        return Ask(
            model=asked.model,
            prompts=_prompts(asked.prompt),
            choices=asked.n or 1,
            max_tokens=asked.max_tokens,
            min_tokens=asked.min_tokens,
            ignore_eos=asked.ignore_eos,
            stream=bool(asked.stream),
            include_usage=include_usage,
            continuous_usage=continuous_usage,
            priority=asked.priority,
            scripted_tokens=asked.scripted_tokens,
        )

    def writer(self, ask: Ask, stamp: Stamp, text: Text) -> "CompletionsWriter":
        """A writer for one answer."""
        return CompletionsWriter(ask, stamp, text)

    def error(self, message: str, kind: str, status: int, param: str | None) -> bytes:
        """The JSON of an error."""
        return openai_error(message, kind, status, param)


class CompletionsWriter:
    """Writes one completion."""

    def __init__(self, ask: Ask, stamp: Stamp, text: Text) -> None:
        self._ask = ask
        self._text = text
        self._envelope: dict[str, Any] = {
            "id": f"cmpl-{stamp.id}",
            "object": "text_completion",
            "created": stamp.created_s,
            "model": stamp.model,
        }
        self._fingerprint = stamp.fingerprint
        self._prefix = b"data: " + msgspec.json.encode(self._envelope)[:-1] + b',"choices":[{"index":'
        self._sent = [0] * (ask.choices * len(ask.prompts))

    def whole(self, endings: list[Piece]) -> bytes:
        """The JSON of a complete answer."""
        completion_tokens = sum(piece.end for piece in endings)
        return msgspec.json.encode(
            self._envelope
            | {
                "choices": [self._choice(piece) for piece in endings],
                "service_tier": None,
                "system_fingerprint": self._fingerprint,
                "usage": usage_with_details(self._ask.prompt_tokens, completion_tokens),
                "kv_transfer_params": None,
                "ec_transfer_params": None,
                "metrics": None,
            }
        )

    def _choice(self, piece: Piece) -> dict[str, Any]:
        return {
            "index": piece.sequence,
            "text": self._text(piece.sequence, 0, piece.end).decode(),
            "logprobs": None,
            "finish_reason": piece.finish_reason,
            "stop_reason": None,
            "token_ids": None,
            "prompt_logprobs": None,
            "prompt_token_ids": None,
            "routed_experts": None,
        }

    def opening(self) -> bytes:
        """Nothing goes out before the first token."""
        return b""

    def piece(self, piece: Piece) -> bytes:
        """One chunk."""
        self._sent[piece.sequence] = piece.end
        reason = b"null" if piece.finish_reason is None else b'"%s"' % piece.finish_reason.encode()
        chunk = b'%s%d,"text":"%s","logprobs":null,"finish_reason":%s,%s' % (
            self._prefix,
            piece.sequence,
            self._text(piece.sequence, piece.begin, piece.end),
            reason,
            b'"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]',
        )
        if self._ask.continuous_usage:
            prompt = self._ask.prompts[piece.sequence // self._ask.choices]
            chunk += usage_json(prompt.tokens, piece.end, chat=False)
        if piece.finish_reason is not None and not self._ask.include_usage:
            chunk += b',"system_fingerprint":' + msgspec.json.encode(self._fingerprint)
        return chunk + b"}\n\n"

    def closing(self) -> bytes:
        """The usage chunk where it was asked for, and the end mark."""
        return end_of_stream(self._ask, self._envelope, sum(self._sent), self._fingerprint)
