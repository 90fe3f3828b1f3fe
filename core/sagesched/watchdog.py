"""Does the scheduler inside the engine do harm? Then it serves first come, first served for a while.

A state machine without a clock: the host tells, once a step, what time it is and how far the engine has come.
"""

from typing import Literal, NamedTuple

REST = 10.0
"""How long a fallback lasts at least, in windows; it ends once there was progress since."""

MIN_PREEMPTIONS = 8
"""In one window, before they count as thrashing."""

Trouble = Literal["stalled", "thrashing"]


class Progress(NamedTuple):
    """Totals since the engine's start; they never fall."""

    tokens: int
    """Computed, of prompts and of outputs."""
    ended: int
    """Requests that finished or left."""
    preemptions: int
    """By our rule; not those of the engine's own when its memory runs out."""


class Watchdog:
    """Trouble is no progress for `window_s` though there are requests, or more preemptions than ended requests in a
    window of that length."""

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        """May be set anew at any time."""
        self.trouble: Trouble | None = None
        """Why requests are to be served first come, first served; None while all is well."""
        self._troubled_s = 0.0
        self._moved_s = 0.0
        self._last: Progress | None = None
        self._opened_s = 0.0
        self._opened: Progress = Progress(0, 0, 0)

    def look(self, now_s: float, unfinished: int, progress: Progress) -> bool:
        """Whether the verdict has just changed; `trouble` has it. `unfinished`: requests that run or wait."""
        if self._last is None:
            self._moved_s = now_s
            self._open(now_s, progress)
        elif unfinished == 0 or progress[:2] != self._last[:2]:
            self._moved_s = now_s
        self._last = progress
        return self._turn(now_s, self._found(now_s, progress))

    def _found(self, now_s: float, progress: Progress) -> Trouble | None:
        if now_s - self._moved_s > self.window_s:
            return "stalled"
        preemptions = progress.preemptions - self._opened.preemptions
        thrashing = preemptions >= MIN_PREEMPTIONS and preemptions > progress.ended - self._opened.ended
        if now_s - self._opened_s <= self.window_s:
            return None
        self._open(now_s, progress)
        return "thrashing" if thrashing else None

    def _open(self, now_s: float, progress: Progress) -> None:
        self._opened_s, self._opened = now_s, progress

    def _turn(self, now_s: float, found: Trouble | None) -> bool:
        before = self.trouble
        if found:
            self.trouble, self._troubled_s = found, now_s
        elif now_s - self._troubled_s >= REST * self.window_s and self._moved_s > self._troubled_s:
            self.trouble = None
        return self.trouble != before
