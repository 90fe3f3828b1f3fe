"""What the scheduler counts, and how it reaches the process that serves /metrics.

vLLM's engine runs in another process than its HTTP server. The one thing that goes from one to the other at each step
and that a stat logger sees is SchedulerStats; so counts travel as members of one of its mappings from text to int, as
the difference since the last step, and are taken out there before anyone else looks (metrics.py).
"""

from collections import Counter
from collections.abc import Iterator, MutableMapping
from typing import NamedTuple

MARK = "sagesched"
_SEPARATOR = "|"

Series = tuple[str, ...]
"""A name, then the values of its labels."""

REFRESHED = "ranks_refreshed"
PREEMPTED = "preemptions"
INVERSIONS = "inversions_avoided"
HELD_BACK = "held_back_steps"
HINTS = "hints"
FALLBACK_STEPS = "fallback_steps"
RELOADS = "settings_reloads"
COUNTS = {
    REFRESHED: ("Ranks made anew at a bucket boundary", ()),
    PREEMPTED: ("Running requests whose place was taken away", ("reason",)),
    INVERSIONS: ("Requests that started before one which came earlier", ()),
    HELD_BACK: ("Steps in which the predicted KV cache use let nobody in though there was a slot", ()),
    HINTS: ("Requests by what they brought along", ("result",)),
    FALLBACK_STEPS: ("Steps served first come, first served", ("reason",)),
    RELOADS: ("Changes of the settings file", ("result",)),
}
"""Counters: what each counts, and its labels."""

FALLBACK = "fallback"
SETTINGS = "settings_info"
STATES = {
    FALLBACK: ("1 while requests are served first come, first served", ()),
    SETTINGS: ("1 for the settings in use", ("hash", "revision")),
}
"""Gauges."""


class Told(NamedTuple):
    """One series and its value: an increment of a counter, or a gauge's state."""

    series: Series
    value: int


class Counters:
    """Counts since the last step that was told, and states of now."""

    def __init__(self) -> None:
        self.totals: Counter[Series] = Counter()
        """Since the start."""
        self.states: dict[Series, int] = {}
        self._told: Counter[Series] = Counter()

    def add(self, name: str, *labels: str, count: int = 1) -> None:
        """So many more."""
        self.totals[name, *labels] += count

    def total(self, name: str, *labels: str) -> int:
        """All since the start, with these labels, or of all that begin with them."""
        return sum(count for series, count in self.totals.items() if series[: 1 + len(labels)] == (name, *labels))

    def put_into(self, carrier: MutableMapping[str, int]) -> None:
        """Hand over what has changed, and every state."""
        for series, count in self.totals.items():
            if more := count - self._told[series]:
                carrier[_SEPARATOR.join((MARK, *series))] = more
                self._told[series] = count
        for series, value in self.states.items():
            carrier[_SEPARATOR.join((MARK, *series))] = value


def take_from(carrier: MutableMapping[str, int]) -> Iterator[Told]:
    """What was put in, which is not in there any longer; members of others stay."""
    for name in [name for name in carrier if name.startswith(MARK + _SEPARATOR)]:
        yield Told(tuple(name.split(_SEPARATOR)[1:]), carrier.pop(name))
