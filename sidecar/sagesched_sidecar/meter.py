"""What an answer says about its length, read while its bytes pass. Most events are counted and never parsed."""

from collections.abc import Callable
from typing import Any

import msgspec

from sagesched_sidecar.surfaces import Surface, Usage


class Meter:
    """Tokens so far and, in the end, usage and how the answer ended."""

    def __init__(self, surface: Surface, choices: int) -> None:
        self._surface = surface
        self.choices = choices
        self.events = 0
        self.usage: Usage | None = None
        self.cut: bool | None = None
        """True when the answer ended at its limit, False when by itself, None before it says so."""
        self.failed = False

    @property
    def generated_tokens(self) -> int:
        """Output tokens of one choice so far: the events that carried text, or more where the engine says so."""
        return -(-max(self.events, self._reported) // self.choices)

    @property
    def output_tokens(self) -> int:
        """Output tokens of one choice once the answer is over: the engine's count, else that of the events."""
        return -(-(self._reported or self.events) // self.choices)

    @property
    def _reported(self) -> int:
        return self.usage.output_tokens or 0 if self.usage else 0

    def count(self, chunk: bytes) -> None:
        """Bytes as they pass. Approximate: an event's name that is cut between two reads is missed."""
        for mark in self._surface.text_marks:
            self.events += chunk.count(mark)

    def read(self, document: Any) -> None:
        """A decoded event, or a whole decoded body."""
        if not isinstance(document, dict):
            return
        usage = self._surface.usage(document)
        if usage is not None:
            self.usage = usage.over(self.usage)
        cut = self._surface.cut(document)
        if cut is not None:
            self.cut = bool(self.cut) or cut
        self.failed = self.failed or self._surface.failed(document)


def worth_parsing(data: bytes) -> bool:
    """Whether these bytes can hold usage, an end or an error; a quote inside a JSON string is never bare.

    A chain and no loop: this runs for every event.
    """
    return (
        b'"usage"' in data
        or b'_reason":"' in data
        or b'_reason": "' in data
        or b'"error"' in data
        or b'"incomplete_details"' in data
    )


def decoded(data: bytes) -> Any:
    """The JSON document, None where there is none."""
    try:
        return _DECODE(data)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


_DECODE: Callable[[bytes], Any] = msgspec.json.Decoder().decode
