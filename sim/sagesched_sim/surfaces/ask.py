"""What a request asks for, whatever surface it came in by, and what a surface must be able to write."""

from collections.abc import Callable
from typing import Any, Protocol

import msgspec


class BadRequest(ValueError):
    """The body cannot be served. `status` is the HTTP status, `kind` vLLM's error type, `param` the field at fault."""

    def __init__(
        self, message: str, *, status: int = 400, kind: str = "BadRequestError", param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param


class Prompt(msgspec.Struct, frozen=True):
    """One prompt: what the engine reads, and what the client wrote."""

    tokens: int
    text: str
    """The client's own text, without template: the key of a lengths file and the topic."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """A request without its surface. Sequences are the prompts times `choices`, in that order."""

    model: str | None
    prompts: list[Prompt]
    choices: int = 1
    max_tokens: int | None = None
    min_tokens: int = 0
    ignore_eos: bool = False
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    priority: int = 0
    scripted_tokens: int | None = None
    echo: dict[str, Any] = {}
    """Fields of the body that the answer repeats."""

    @property
    def prompt_tokens(self) -> int:
        """Prompt tokens in all, each prompt counted once."""
        return sum(prompt.tokens for prompt in self.prompts)


class StreamOptions(msgspec.Struct, frozen=True):
    """`stream_options` of the OpenAI surfaces."""

    include_usage: bool | None = True
    continuous_usage_stats: bool | None = False


def usage_asked_for(options: StreamOptions | None, *, stream: bool) -> tuple[bool, bool]:
    """Whether usage is wanted at the end, and whether in every chunk. Raises BadRequest for options of no stream."""
    if options is None:
        return False, False
    if not stream:
        raise BadRequest("Stream options can only be defined when `stream=True`.", param="stream_options")
    return bool(options.include_usage), bool(options.include_usage and options.continuous_usage_stats)


class Common(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that every surface shares. Unknown ones (and `stop`, which filler text never meets) are ignored."""

    model: str | None = None
    stream: bool | None = False
    min_tokens: int = 0
    ignore_eos: bool = False
    vllm_xargs: Any = None

    @property
    def scripted_tokens(self) -> int | None:
        """The true length that a test wrote into the body (`vllm_xargs.sim_output_tokens`)."""
        value = self.vllm_xargs.get("sim_output_tokens") if isinstance(self.vllm_xargs, dict) else None
        if value is None:
            return None
        if not isinstance(value, int) or value < 1:
            raise BadRequest("sim_output_tokens must be an integer of at least 1", param="vllm_xargs")
        return value


Scalar = str | int | float | bool


class Sampling(Common, frozen=True, kw_only=True):
    """The fields of the surfaces of OpenAI's form. vLLM's Anthropic surface knows neither of them."""

    priority: int = 0
    vllm_xargs: dict[str, Scalar | list[Scalar]] | None = None
    """Flat, as in vLLM: what is nested further does not decode."""


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer carries of its circumstances."""

    id: str
    """The bare id: X-Request-Id, or a random one."""
    created_s: int
    model: str
    fingerprint: str
    max_tokens: int
    """The cap in force for the (first) sequence."""


class Piece(msgspec.Struct, frozen=True):
    """Tokens [begin, end) of one sequence, ready to be sent; with the reason where they are its last."""

    sequence: int
    begin: int
    end: int
    finish_reason: str | None = None


Text = Callable[[int, int, int], bytes]
"""The words of the answers: (sequence, begin, end) to its tokens [begin, end), fit to stand inside a JSON string."""


class Writer(Protocol):
    """Writes one answer in its surface's shape: `whole`, or `opening`, `piece` as they come, and `closing`."""

    def whole(self, endings: list[Piece]) -> bytes:
        """The JSON of a complete answer; `endings` is one piece a sequence, from 0 to its end."""

    def opening(self) -> bytes:
        """Events that go out before any token is there."""

    def piece(self, piece: Piece) -> bytes:
        """The event (or events) of a piece."""

    def closing(self) -> bytes:
        """Events after the last piece."""


class Surface(Protocol):
    """One path."""

    path: str

    def read(self, body: bytes) -> Ask:
        """Decodes a body. Raises BadRequest, or msgspec.DecodeError where it is not of the surface's form."""

    def writer(self, ask: Ask, stamp: Stamp, text: Text) -> Writer:
        """A writer for one answer."""

    def error(self, message: str, kind: str, status: int, param: str | None) -> bytes:
        """The JSON of an error."""


def openai_error(message: str, kind: str, status: int, param: str | None) -> bytes:
    """An error as the OpenAI surfaces of vLLM write it."""
    return msgspec.json.encode({"error": {"message": message, "type": kind, "param": param, "code": status}})
