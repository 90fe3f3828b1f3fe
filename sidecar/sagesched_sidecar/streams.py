"""An answer's bytes on their way to the client: all of them at once, but for the usage event that we asked for."""

import re
from typing import Any, Protocol

from sagesched_sidecar.events import LATE_LF, EventCutter, event_data
from sagesched_sidecar.meter import Meter, decoded, worth_parsing

HELD_BYTES = 16_384
"""The usage event is never longer; what is longer is never held nor taken out."""
TEE_BYTES = 8 << 20
"""A full answer that is longer is passed without being read."""

_END_OF_LINE = b"\r\n"
_HAS_CHOICES = re.compile(rb'"choices"\s*:\s*\[\s*[^\]\s]')


class Passage(Protocol):
    """Bytes in, bytes out."""

    def feed(self, chunk: bytes) -> bytes:
        """What can be sent on now."""

    def close(self) -> bytes:
        """What is sent after the last read."""


class Untouched:
    """Bytes that nobody reads."""

    def feed(self, chunk: bytes) -> bytes:
        """The chunk itself."""
        return chunk

    def close(self) -> bytes:
        """Nothing."""
        return b""


class WatchedEvents:
    """An event stream of which nothing is held or removed."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._cutter = EventCutter()

    def feed(self, chunk: bytes) -> bytes:
        """The chunk itself."""
        self._meter.count(chunk)
        if not passes_unread(self._cutter, chunk):
            for event in self._cutter.feed(chunk):
                if worth_parsing(event):
                    self._meter.read(decoded(event_data(event)))
            self._cutter.trim()
        return chunk

    def close(self) -> bytes:
        """Nothing; an event without its blank line is read."""
        self._meter.read(decoded(event_data(bytes(self._cutter.pending))))
        return b""


class StrippedEvents:
    """An event stream without its usage event: the one whose choices are empty and whose usage is not.

    An incomplete event is held only while it may still turn out to be that one. How the stream is cut into reads never
    changes what comes out.
    """

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._cutter = EventCutter()
        self._sent_bytes = 0
        self._stripped_last = False

    def feed(self, chunk: bytes) -> bytes:
        """What can be sent on now."""
        self._meter.count(chunk)
        if passes_unread(self._cutter, chunk):
            self._stripped_last = False
            return chunk
        out = [self._kept_of(event) for event in self._cutter.feed(chunk)]
        pending = self._cutter.pending
        if self._sent_bytes or len(pending) > HELD_BYTES + 8 or _HAS_CHOICES.search(pending):
            out.append(bytes(pending[self._sent_bytes :]))
            self._sent_bytes = len(pending) - self._cutter.trim()
        return b"".join(out)

    def close(self) -> bytes:
        """What was held, unless it is the usage event without its blank line."""
        return self._without_usage(bytes(self._cutter.pending))

    def _kept_of(self, event: bytes) -> bytes:
        if event == LATE_LF:
            return b"" if self._stripped_last else event
        return self._without_usage(event)

    def _without_usage(self, event: bytes) -> bytes:
        sent, self._sent_bytes = self._sent_bytes, 0
        document = decoded(event_data(event)) if worth_parsing(event) else None
        self._meter.read(document)
        self._stripped_last = not sent and _is_usage_event(event, document)
        if self._stripped_last:
            return event[: len(event) - len(event.lstrip(_END_OF_LINE))]
        return event[sent:]


class FullBody:
    """A full answer: a copy of bounded size is read in the end."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._copy: bytearray | None = bytearray()

    def feed(self, chunk: bytes) -> bytes:
        """The chunk itself."""
        if self._copy is not None:
            self._copy += chunk
            if len(self._copy) > TEE_BYTES:
                self._copy = None
        return chunk

    def close(self) -> bytes:
        """Nothing is ever held."""
        if self._copy:
            self._meter.read(decoded(bytes(self._copy)))
        return b""


def passes_unread(cutter: EventCutter, chunk: bytes) -> bool:
    """Whole events, nothing in them to be read: by far the most of a stream, and these few look-ups all they cost."""
    return cutter.at_boundary and chunk.endswith((b"\n\n", b"\n\r\n")) and not worth_parsing(chunk)


def _is_usage_event(event: bytes, document: Any) -> bool:
    return (
        isinstance(document, dict)
        and document.get("choices") == []
        and isinstance(document.get("usage"), dict)
        and len(event.strip(_END_OF_LINE)) <= HELD_BYTES
        and not _HAS_CHOICES.search(event)
    )
