"""/v1/chat/completions, as vLLM 0.32 writes it."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from sagesched_sim.prompt import chat_template, content_text, count_tokens
from sagesched_sim.surfaces.ask import (
    Ask,
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


class _Message(msgspec.Struct, frozen=True):
    role: str
    content: str | list[Any] | None = None


class _Body(Sampling, frozen=True, kw_only=True):
    messages: Annotated[list[_Message], Meta(min_length=1)]
    n: Annotated[int, Meta(ge=1, le=128)] | None = 1
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    stream_options: StreamOptions | None = None


class ChatSurface:
    """Chat completions."""

    path = "/v1/chat/completions"

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(_Body)

    def read(self, body: bytes) -> Ask:
        """Decodes a body. Raises BadRequest or msgspec.DecodeError."""
        asked = self._decoder.decode(body)
        include_usage, continuous_usage = usage_asked_for(asked.stream_options, stream=bool(asked.stream))
        turns = [(message.role, content_text(message.content)) for message in asked.messages]
        text = "\n".join(said for _, said in turns)
        return Ask(
            model=asked.model,
            prompts=[Prompt(count_tokens(chat_template(turns)), text)],
            choices=asked.n or 1,
            max_tokens=asked.max_completion_tokens if asked.max_completion_tokens is not None else asked.max_tokens,
            min_tokens=asked.min_tokens,
            ignore_eos=asked.ignore_eos,
            stream=bool(asked.stream),
            include_usage=include_usage,
            continuous_usage=continuous_usage,
            priority=asked.priority,
            scripted_tokens=asked.scripted_tokens,
        )

    def writer(self, ask: Ask, stamp: Stamp, text: Text) -> "ChatWriter":
        """A writer for one answer."""
        return ChatWriter(ask, stamp, text)

    def error(self, message: str, kind: str, status: int, param: str | None) -> bytes:
        """The JSON of an error."""
        return openai_error(message, kind, status, param)


class ChatWriter:
    """Writes one chat answer."""

    def __init__(self, ask: Ask, stamp: Stamp, text: Text) -> None:
        self._ask = ask
        self._text = text
        self._envelope: dict[str, Any] = {
            "id": f"chatcmpl-{stamp.id}",
            "object": "chat.completion.chunk",
            "created": stamp.created_s,
            "model": stamp.model,
        }
        self._fingerprint = stamp.fingerprint
        # Everything of a chunk up to its choice is the same in every one, so it is encoded once.
        self._prefix = b"data: " + msgspec.json.encode(self._envelope)[:-1] + b',"choices":[{"index":'
        self._opened = False
        self._sent = [0] * ask.choices

    def whole(self, endings: list[Piece]) -> bytes:
        """The JSON of a complete answer."""
        completion_tokens = sum(piece.end for piece in endings)
        return msgspec.json.encode(
            self._envelope
            | {
                "object": "chat.completion",
                "choices": [self._choice(piece) for piece in endings],
                "service_tier": None,
                "system_fingerprint": self._fingerprint,
                "usage": usage_with_details(self._ask.prompt_tokens, completion_tokens),
                "prompt_logprobs": None,
                "prompt_token_ids": None,
                "prompt_text": None,
                "kv_transfer_params": None,
                "ec_transfer_params": None,
                "metrics": None,
            }
        )

    def _choice(self, piece: Piece) -> dict[str, Any]:
        return {
            "index": piece.sequence,
            "message": {
                "role": "assistant",
                "content": self._text(piece.sequence, 0, piece.end).decode(),
                "refusal": None,
                "annotations": None,
                "audio": None,
                "function_call": None,
                "reasoning": None,
            },
            "logprobs": None,
            "finish_reason": piece.finish_reason,
            "stop_reason": None,
            "token_ids": None,
            "routed_experts": None,
        }

    def opening(self) -> bytes:
        """Nothing: the chunks with the role go out with the first token."""
        return b""

    def piece(self, piece: Piece) -> bytes:
        """One chunk; the first is preceded by a chunk with the role for every choice."""
        self._sent[piece.sequence] = piece.end
        chunk = b"%s%d%s%s%s" % (
            self._prefix,
            piece.sequence,
            b',"delta":{"content":"',
            self._text(piece.sequence, piece.begin, piece.end),
            self._tail(piece),
        )
        if self._opened:
            return chunk
        self._opened = True
        return self._roles() + chunk

    def _tail(self, piece: Piece) -> bytes:
        if piece.finish_reason is None:
            tail = b'"},"logprobs":null,"finish_reason":null,"token_ids":null}]'
        else:
            reason = piece.finish_reason.encode()
            tail = b'"},"logprobs":null,"finish_reason":"%s","stop_reason":null,"token_ids":null}]' % reason
        if self._ask.continuous_usage:
            tail += usage_json(self._ask.prompt_tokens, piece.end, chat=True)
        if piece.finish_reason is not None and not self._ask.include_usage:
            tail += b',"system_fingerprint":' + msgspec.json.encode(self._fingerprint)
        return tail + b"}\n\n"

    def _roles(self) -> bytes:
        tail = b',"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
        if self._ask.continuous_usage:
            tail += usage_json(self._ask.prompt_tokens, 0, chat=True)
        tail += b',"prompt_token_ids":null,"prompt_text":null}\n\n'
        return b"".join(b"%s%d%s" % (self._prefix, index, tail) for index in range(self._ask.choices))

    def closing(self) -> bytes:
        """The usage chunk where it was asked for, and the end mark."""
        return end_of_stream(self._ask, self._envelope, sum(self._sent), self._fingerprint)
