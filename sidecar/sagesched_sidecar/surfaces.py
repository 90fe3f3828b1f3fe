"""The four APIs that are scheduled: where each keeps its prompt, its limits, its usage and how an answer ended."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from sagesched_sidecar.body_edit import with_usage

Document = dict[str, Any]
MAX_CHOICES = 4096


class Usage(NamedTuple):
    """The engine's own count. Output tokens of all choices together, reasoning and tool calls among them; None where it
    did not say."""

    prompt_tokens: int | None
    output_tokens: int | None
    cached_tokens: int | None = None
    """Of the prompt's tokens, those that a prefix cache held."""

    def over(self, earlier: "Usage | None") -> "Usage":
        """This report, filled up with what an earlier one of the same answer said."""
        if earlier is None:
            return self
        prompt = earlier.prompt_tokens if self.prompt_tokens is None else self.prompt_tokens
        output = earlier.output_tokens if self.output_tokens is None else self.output_tokens
        cached = earlier.cached_tokens if self.cached_tokens is None else self.cached_tokens
        return Usage(prompt, output, cached)


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What the scheduler needs of one request."""

    model: str = ""
    prompt: str = ""
    prompt_tokens: int | None = None
    """Known where the client sent token ids."""
    max_tokens: int | None = None
    choices: int = 1
    effort: str = ""
    tools: bool = False
    asked_tokens: float | None = None
    """The amount of output that the prompt asks for, where the client says it; else it is read from the prompt."""


CUT = frozenset(
    {
        *("length", "max_tokens", "model_context_window_exceeded", "abort", "error", "content_filter", "refusal"),
        *("repetition", "pause_turn"),
    }
)
"""Finish reasons of an answer that would have gone on: its length is censored."""
MAX_NAME_CHARACTERS = 256
"""What a client calls a model or an effort is kept; no longer a name than this."""


class Surface:
    """One API. Everything here tolerates any JSON: what has the wrong type counts as absent."""

    path = ""
    anthropic = False
    takes_place = True
    """Whether the engine reads a priority and extra arguments in the body."""
    text_marks: tuple[bytes, ...] = (b"data:",)
    """Bytes of which each event that carries output has one."""

    def ask(self, body: Document) -> Ask:
        """What the scheduler needs of a request."""
        return Ask(
            model=_text(body.get("model"))[:MAX_NAME_CHARACTERS],
            prompt="\n".join(self._prompt(body)),
            prompt_tokens=self._prompt_tokens(body),
            max_tokens=self._max_tokens(body),
            choices=self._choices(body),
            effort=self._effort(body)[:MAX_NAME_CHARACTERS],
            tools=bool(body.get("tools")) and body.get("tool_choice") != "none",
        )

    def asking_for_usage(self, raw: bytes, body: Document) -> bytes | None:
        """The body that also asks for a usage event; None where nothing needs to be asked for."""
        return None

    def usage(self, document: Document) -> Usage | None:
        """The usage in a full answer or in an event."""
        return None

    def cut(self, document: Document) -> bool | None:
        """How a full answer or an event says that the answer ended: True at a limit, False by itself."""
        return None

    def failed(self, document: Document) -> bool:
        """Whether a full answer or an event reports an error."""
        return isinstance(document.get("error"), dict)

    def _prompt(self, body: Document) -> Iterator[str]:
        yield from ()

    def _prompt_tokens(self, body: Document) -> int | None:
        return None

    def _max_tokens(self, body: Document) -> int | None:
        return _count(body.get("max_tokens"))

    def _choices(self, body: Document) -> int:
        return _choices(body.get("n"))

    def _effort(self, body: Document) -> str:
        return _text(body.get("reasoning_effort"))


class _ChoicesSurface(Surface):
    """What chat completions and completions share."""

    def asking_for_usage(self, raw: bytes, body: Document) -> bytes | None:
        options = body.get("stream_options")
        if body.get("stream") is not True or not isinstance(options, dict | None):
            return None
        if options and options.get("include_usage"):
            return None
        return with_usage(raw, body)

    def usage(self, document: Document) -> Usage | None:
        return _usage(document.get("usage"), "prompt_tokens", "completion_tokens")

    def cut(self, document: Document) -> bool | None:
        reasons = [choice.get("finish_reason") for choice in _dicts(document.get("choices"))]
        known = [reason for reason in reasons if isinstance(reason, str)]
        return not CUT.isdisjoint(known) if known else None


class Chat(_ChoicesSurface):
    """POST /v1/chat/completions"""

    path = "/v1/chat/completions"

    def _prompt(self, body: Document) -> Iterator[str]:
        for message in _dicts(body.get("messages")):
            yield from _texts(message.get("content"))

    def _max_tokens(self, body: Document) -> int | None:
        limit = _count(body.get("max_completion_tokens"))
        return _count(body.get("max_tokens")) if limit is None else limit


class Completions(_ChoicesSurface):
    """POST /v1/completions. A list of prompts counts as so many choices."""

    path = "/v1/completions"

    def _prompt(self, body: Document) -> Iterator[str]:
        yield from _texts(body.get("prompt"))

    def _prompt_tokens(self, body: Document) -> int | None:
        prompt = body.get("prompt")
        if not isinstance(prompt, list) or not prompt:
            return None
        if type(prompt[0]) is int:
            return len(prompt)
        lists = [part for part in prompt if isinstance(part, list)]
        return sum(map(len, lists)) if len(lists) == len(prompt) else None

    def _choices(self, body: Document) -> int:
        prompt = body.get("prompt")
        batch = len(prompt) if isinstance(prompt, list) and prompt and not isinstance(prompt[0], int) else 1
        return min(batch * _choices(body.get("n")), MAX_CHOICES)


class Responses(Surface):
    """POST /v1/responses"""

    path = "/v1/responses"
    text_marks = (b".delta\n", b".delta\r")

    def usage(self, document: Document) -> Usage | None:
        return _usage(_response(document).get("usage"), "input_tokens", "output_tokens")

    def cut(self, document: Document) -> bool | None:
        status = _response(document).get("status")
        return (
            {"completed": False, "incomplete": True, "cancelled": True}.get(status) if isinstance(status, str) else None
        )

    def failed(self, document: Document) -> bool:
        response = _response(document)
        failed = isinstance(response.get("error"), dict) or response.get("status") == "failed"
        return failed or document.get("type") == "error"

    def _prompt(self, body: Document) -> Iterator[str]:
        yield from _texts(body.get("instructions"))
        given = body.get("input")
        if isinstance(given, str):
            yield given
        for item in _dicts(given):
            yield from _texts(item.get("content"))
            yield from _texts(item.get("output"))

    def _max_tokens(self, body: Document) -> int | None:
        return _count(body.get("max_output_tokens"))

    def _choices(self, body: Document) -> int:
        return 1

    def _effort(self, body: Document) -> str:
        reasoning = body.get("reasoning")
        return _text(reasoning.get("effort")) if isinstance(reasoning, dict) else ""


class Messages(Surface):
    """POST /v1/messages (Anthropic's)"""

    path = "/v1/messages"
    anthropic = True
    takes_place = False
    text_marks = (b"event: content_block_delta", b"event:content_block_delta")

    def usage(self, document: Document) -> Usage | None:
        message = document.get("message")
        usage = (message if isinstance(message, dict) else document).get("usage")
        found = _usage(usage, "input_tokens", "output_tokens")
        if usage is None or found is None or found.prompt_tokens is None:
            return found
        read, made = (_count(usage.get(f"cache_{kind}_input_tokens")) for kind in ("read", "creation"))
        return Usage(found.prompt_tokens + (read or 0) + (made or 0), found.output_tokens, read)

    def cut(self, document: Document) -> bool | None:
        delta = document.get("delta")
        reason = (delta if isinstance(delta, dict) else document).get("stop_reason")
        return reason in CUT if isinstance(reason, str) else None

    def _prompt(self, body: Document) -> Iterator[str]:
        yield from _texts(body.get("system"))
        for message in _dicts(body.get("messages")):
            yield from _texts(message.get("content"))

    def _choices(self, body: Document) -> int:
        return 1

    def _effort(self, body: Document) -> str:
        output, thinking = body.get("output_config"), body.get("thinking")
        effort = _text(output.get("effort")) if isinstance(output, dict) else ""
        return effort or (_text(thinking.get("type")) if isinstance(thinking, dict) else "")


SURFACES: dict[str, Surface] = {surface.path: surface for surface in (Chat(), Completions(), Responses(), Messages())}
"""By path; all of them are POST."""


def _response(document: Document) -> Document:
    """A Responses event carries the response; a full answer is it."""
    response = document.get("response")
    return response if isinstance(response, dict) else document


def _usage(value: Any, prompt: str, output: str) -> Usage | None:
    if not isinstance(value, dict):
        return None
    details = value.get(f"{prompt}_details")
    cached = _count(details.get("cached_tokens")) if isinstance(details, dict) else None
    return Usage(_count(value.get(prompt)), _count(value.get(output)), cached)


def _texts(value: Any) -> Iterator[str]:
    """The text of a content: a string, or a list of strings and parts; images, sounds and token ids have none."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list) and value and not isinstance(value[0], int):
        for part in value:
            if isinstance(part, str):
                yield part
            elif isinstance(part, dict):
                text = part.get("text")
                yield from _texts(part.get("content") if text is None else text)


def _dicts(value: Any) -> Iterator[Document]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 31 else None


def _choices(value: Any) -> int:
    return min(max(_count(value) or 1, 1), MAX_CHOICES)
