"""/v1/messages (Anthropic's), as vLLM 0.32 writes it."""

from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from sagesched_sim.prompt import chat_template, content_text, count_tokens
from sagesched_sim.surfaces.ask import Ask, Common, Piece, Prompt, Stamp, Text

_STOP_REASONS: Final = {"stop": "end_turn", "length": "max_tokens"}


class _Message(msgspec.Struct, frozen=True):
    role: str
    content: str | list[Any]


class _Counted(Common, frozen=True, kw_only=True):
    messages: Annotated[list[_Message], Meta(min_length=1)]
    system: str | list[Any] | None = None

    def turns(self) -> list[tuple[str, str]]:
        """(role, text) pairs, the system prompt first where there is one."""
        said = [(message.role, content_text(message.content)) for message in self.messages]
        return said if self.system is None else [("system", content_text(self.system)), *said]


class _Body(_Counted, frozen=True, kw_only=True):
    max_tokens: Annotated[int, Meta(ge=1)]


class MessagesSurface:
    """Messages."""

    path = "/v1/messages"

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(_Body)
        self._count_decoder = msgspec.json.Decoder(_Counted)

    def read(self, body: bytes) -> Ask:
        """Decodes a body. Raises BadRequest or msgspec.DecodeError."""
        asked = self._decoder.decode(body)
        turns = asked.turns()
        return Ask(
            model=asked.model,
            prompts=[Prompt(count_tokens(chat_template(turns)), "\n".join(said for _, said in turns))],
            max_tokens=asked.max_tokens,
            min_tokens=asked.min_tokens,
            ignore_eos=asked.ignore_eos,
            stream=bool(asked.stream),
            scripted_tokens=asked.scripted_tokens,
        )

    def count(self, body: bytes) -> int:
        """Prompt tokens of a body of /v1/messages/count_tokens. Raises msgspec.DecodeError."""
        return count_tokens(chat_template(self._count_decoder.decode(body).turns()))

    def writer(self, ask: Ask, stamp: Stamp, text: Text) -> "MessagesWriter":
        """A writer for one answer."""
        return MessagesWriter(ask, stamp, text)

    def error(self, message: str, kind: str, status: int, param: str | None) -> bytes:
        """The JSON of an error, in Anthropic's shape."""
        return msgspec.json.encode({"type": "error", "error": {"type": kind, "message": message}})


class MessagesWriter:
    """Writes one message. Its id is that of the chat completion underneath, as in vLLM."""

    def __init__(self, ask: Ask, stamp: Stamp, text: Text) -> None:
        self._ask = ask
        self._stamp = stamp
        self._text = text
        self._opened = False
        self._sent = 0
        self._stop_reason = "end_turn"

    def _usage(self, output_tokens: int) -> dict[str, int]:
        return {"input_tokens": self._ask.prompt_tokens, "output_tokens": output_tokens}

    def _message(self) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-{self._stamp.id}",
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": self._stamp.model,
        }

    def whole(self, endings: list[Piece]) -> bytes:
        """The JSON of a complete message; what is null is left out."""
        ending = endings[0]
        message = self._message()
        message["content"] = [{"type": "text", "text": self._text(0, 0, ending.end).decode()}]
        message["stop_reason"] = _STOP_REASONS[ending.finish_reason or "stop"]
        message["usage"] = self._usage(ending.end)
        return msgspec.json.encode(message)

    def opening(self) -> bytes:
        """Nothing: `message_start` goes out with the first token."""
        return b""

    def piece(self, piece: Piece) -> bytes:
        """One delta; the first is preceded by the start of the message and of its one block."""
        self._sent = piece.end
        if piece.finish_reason is not None:
            self._stop_reason = _STOP_REASONS[piece.finish_reason]
        delta = (
            b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"type":"text_delta","text":"%s"}'
            b',"index":0}\n\n' % self._text(0, piece.begin, piece.end)
        )
        if self._opened:
            return delta
        self._opened = True
        return self._starts() + delta

    def _starts(self) -> bytes:
        message = self._message() | {"stop_reason": None, "stop_sequence": None, "usage": self._usage(0)}
        block = {"type": "text", "text": ""}
        return _event({"type": "message_start", "message": message}) + _event(
            {"type": "content_block_start", "content_block": block, "index": 0}
        )

    def closing(self) -> bytes:
        """The end of the block, the reason with the usage, the end of the message."""
        return (
            _event({"type": "content_block_stop", "index": 0})
            + _event(
                {
                    "type": "message_delta",
                    "delta": {"stop_reason": self._stop_reason, "stop_sequence": None},
                    "usage": self._usage(self._sent),
                }
            )
            + _event({"type": "message_stop"})
        )


def _event(event: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (event["type"].encode(), msgspec.json.encode(event))
