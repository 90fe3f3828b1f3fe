"""Server-sent events out of a byte stream, cut anywhere; sans I/O.

An event is all bytes up to and with its blank line; joined, the events are the stream again.
"""

import re

KEPT_BYTES = 4 << 20
"""Of an event that is not complete yet, at most so much is kept to be read; a longer one passes unread."""

_BLANK_LINE = re.compile(rb"(?:\r\n|\r(?!\n)|\n)(?:\r\n|\r|\n)")
_LOOK_BACK_BYTES = 3
_LINES = re.compile(rb"\r\n|\r|\n")


class EventCutter:
    """Feed it reads of any size; it gives the events that each of them completes."""

    def __init__(self, kept_bytes: int = KEPT_BYTES) -> None:
        self.pending = bytearray()
        """The incomplete event so far."""
        self._kept_bytes = kept_bytes
        self._after_cr = False

    @property
    def at_boundary(self) -> bool:
        """Whether the next byte begins an event."""
        return not self.pending and not self._after_cr

    def feed(self, chunk: bytes) -> list[bytes]:
        """The events that are complete now.

        The LF of a CRLF that was cut between two reads comes alone, as `LATE_LF`.
        """
        events: list[bytes] = []
        if self._after_cr and chunk:
            self._after_cr = False
            if chunk[:1] == LATE_LF:
                events.append(LATE_LF)
                chunk = chunk[1:]
        pending = self.pending
        search_from, start = max(0, len(pending) - _LOOK_BACK_BYTES), 0
        pending += chunk
        while blank := _BLANK_LINE.search(pending, search_from):
            events.append(bytes(pending[start : blank.end()]))
            start = search_from = blank.end()
        if start:
            self._after_cr = start == len(pending) and pending[-1:] == b"\r"
            del pending[:start]
        return events

    def trim(self) -> int:
        """Forget the beginning of a pending event that is too long to keep; how many bytes were forgotten."""
        surplus = len(self.pending) - _LOOK_BACK_BYTES if len(self.pending) > self._kept_bytes else 0
        if surplus:
            del self.pending[:surplus]
        return surplus


LATE_LF = b"\n"


def event_data(event: bytes) -> bytes:
    """The event's data: its `data` lines joined by LF."""
    if event.startswith(b"data: ") and event.endswith(b"\n\n") and event.find(b"\n") == len(event) - 2:
        return event[6:-2]
    lines = [line for line in _LINES.split(event) if line.startswith(b"data:")]
    return b"\n".join(line[6:] if line[5:6] == b" " else line[5:] for line in lines)
