"""Whether lengths have changed so that older records mislead, and what to make of them then (docs/method.md section 8).

By model, in two steps, as either alone is fooled. A two-sided CUSUM watches where lengths fall in what was predicted of
them: it is quick, but short answers that end first look like a change too. When it rises, predictions by all records as
they are, by the older ones counting for little, and by the older ones read as longer or shorter by the factor that was
seen, are held against the next lengths; the best is taken up, if it is clearly better.
"""

import math
from collections.abc import Sequence

from sagesched.history import Discount
from sagesched.scoring import DECILES

ALLOWANCE = 0.25
"""Standard deviations of a uniform by which the mean may be off without being noticed."""
ALARM = 12.0
"""Sum of what is beyond the allowance at which the older records are put on trial."""
TRIAL_SCORES = 40
"""Lengths that a trial takes."""
BETTER = 0.97
"""Something else is made of the older records where that makes the CRPS smaller than so much of what it was."""
LITTLE, SCALED = 0.05, 0.3
"""What an older record counts for; and where it is read at another length."""
MAX_MODELS = 32


class _Side:
    """One side of a CUSUM: lengths longer than predicted, or shorter."""

    def __init__(self, learnt: int) -> None:
        self.restart(learnt)

    def restart(self, learnt: int) -> None:
        """Nothing is off, when so much was learnt."""
        self.sum, self.since, self.logs, self.count = 0.0, learnt, 0.0, 0

    def add(self, off: float, log_ratio: float, learnt: int) -> None:
        """One length was so far off to this side."""
        self.sum += off - ALLOWANCE
        if self.sum <= 0:
            self.restart(learnt)
        else:
            self.logs, self.count = self.logs + log_ratio, self.count + 1


class _Watch:
    """One model's."""

    def __init__(self, learnt: int) -> None:
        self.sides = (_Side(learnt), _Side(learnt))
        self.rivals: list[Discount] = []
        """On trial beside what is."""
        self.crps: list[float] = []
        """Of what is, then of each rival."""
        self.scores = 0


class Drift:
    """See the module. Models beyond the first `MAX_MODELS` are not watched."""

    def __init__(self) -> None:
        self._watches: dict[str, _Watch] = {}

    def rivals(self, model: str) -> list[Discount]:
        """What is on trial; nothing where there is no trial."""
        watch = self._watches.get(model)
        return watch.rivals if watch is not None else []

    def fell(self, model: str, pit_deciles: Sequence[float], log_ratio: float, learnt: int) -> None:
        """A length fell so in its prediction, and was so far from its median (the log of their ratio), when so much was
        learnt. May begin a trial."""
        if model not in self._watches and len(self._watches) >= MAX_MODELS:
            return
        watch = self._watches.setdefault(model, _Watch(learnt))
        if watch.rivals:
            return
        mean = sum((tenth + 0.5) * share for tenth, share in enumerate(pit_deciles)) / DECILES
        off = (mean - 0.5) * math.sqrt(12.0)
        for side, sign in zip(watch.sides, (1.0, -1.0), strict=True):
            side.add(sign * off, log_ratio, learnt)
            if side.sum > ALARM:
                factor = math.exp(side.logs / side.count)
                watch.rivals = [Discount(side.since, LITTLE), Discount(side.since, SCALED, factor)]
                watch.crps, watch.scores = [0.0] * 3, 0
                return

    def tried(self, model: str, crps: Sequence[float], learnt: int) -> Discount | None:
        """What a length scored under what is, and under each rival; at the end of a trial the rival that won it."""
        watch = self._watches[model]
        watch.crps = [total + one for total, one in zip(watch.crps, crps, strict=True)]
        watch.scores += 1
        if watch.scores < TRIAL_SCORES:
            return None
        score, winner = min(zip(watch.crps[1:], watch.rivals, strict=True))
        watch.rivals = []
        if score < BETTER * watch.crps[0]:
            self._watches[model] = _Watch(learnt)
            return winner
        # There may be too few new records yet to tell: half of an alarm is left, and when it began.
        for side in watch.sides:
            side.sum = min(side.sum, ALARM / 2)
        return None
