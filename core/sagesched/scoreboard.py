"""How good predictions are lately, for each model and level, and which level is used where the chain does harm.

All sums decay: the last 200 finished requests count most (docs/method.md section 8).
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sagesched.lengths import FloatArray
from sagesched.predictor import Prediction
from sagesched.request import Outcome, Request
from sagesched.scoring import DECILES, MIXTURE, REFERENCE, SCORED_LEVELS, Score, score

MEMORY = 0.995
"""Weight that a score keeps when the next one of its model comes."""
MIN_SCORED = 100
"""Requests of a model that were scored before a fallback is thought of."""
MIN_WEIGHT = 50.0
"""Decayed count of scores that a level needs to be fallen back to."""
TOLERANCE = 0.02
"""The chain is left when its CRPS exceeds the global level's by more than this part, and taken up again below it by as
much."""
TOLERANCE_TOKENS = 1.0
"""Beside it: less than a token is no harm."""
SWITCH = 0.05
"""A level that is fallen back to is changed for another whose skill is so much larger."""
MAX_MODELS = 32
OTHER = "other"

_NAMES = (*SCORED_LEVELS, MIXTURE)


class LevelScore(NamedTuple):
    """One level lately."""

    crps_tokens: float
    skill: float
    """1 - CRPS over the global level's on the same requests: 0 is no better, below 0 worse, 1 perfect."""
    weight: float
    """Decayed count of the requests that had it."""


class Calibration(NamedTuple):
    """One model's predictions lately."""

    scored: int
    """Requests since the start that told something."""
    coverage_80: float
    """Share of lengths between the predicted 10th and 90th percentile: 0.8 when calibrated."""
    pit_deciles: tuple[float, ...]
    """Share of lengths in each tenth of what had been predicted: 0.1 each when calibrated."""
    levels: dict[str, LevelScore]
    fallback: str | None
    """The level that is used alone, because the chain did worse than the global level."""


class Turn(NamedTuple):
    """A model's predictions come from elsewhere from now on."""

    model: str
    fallback: str | None
    """The level that is used alone; None for the whole chain again."""
    skill: float
    """The chain's."""


class Finished(NamedTuple):
    """What a finished request says about its prediction."""

    predicted_mean_tokens: float
    score: Score | None
    """None where the length tells nothing (scoring.py)."""
    turn: Turn | None


class ModelScores:
    """Decayed sums of one model's scores."""

    def __init__(self) -> None:
        self.scored = 0
        self.fallback: str | None = None
        self._pit: FloatArray = np.zeros(DECILES)
        self._sums: FloatArray = np.zeros((3, len(_NAMES)))
        """Rows: CRPS, the global level's CRPS on the same requests, weight."""

    def add(self, found: Score) -> bool:
        """One more; returns whether another level, or the chain again, is used from now on."""
        self.scored += 1
        self._pit = self._pit * MEMORY + np.array(found.pit_deciles)
        reference = found.crps_tokens[REFERENCE]
        new = [(found.crps_tokens[name], reference, 1.0) if name in found.crps_tokens else _NONE for name in _NAMES]
        self._sums = self._sums * MEMORY + np.array(new).T
        before, self.fallback = self.fallback, self._choose()
        return self.fallback != before

    def level(self, name: str) -> LevelScore | None:
        """How one level does; None while it was never there."""
        own, reference, weight = self._sums[:, _NAMES.index(name)].tolist()
        return LevelScore(own / weight, _skill(own, reference), weight) if weight > 0 else None

    def calibration(self) -> Calibration:
        """Everything, as of now."""
        pit = self._pit / max(1e-300, float(self._pit.sum()))
        levels = {name: found for name in _NAMES if (found := self.level(name))}
        return Calibration(self.scored, float(pit[1:-1].sum()), tuple(pit.tolist()), levels, self.fallback)

    def _choose(self) -> str | None:
        own, reference, weight = self._sums[:, -1].tolist()
        if self.fallback is None:
            harm = own > (1 + TOLERANCE) * reference + TOLERANCE_TOKENS * weight
            return self._best() if harm and self.scored >= MIN_SCORED else None
        if own < (1 - TOLERANCE) * reference:
            return None
        best = self._best()
        return best if self._skill_of(best) > self._skill_of(self.fallback) + SWITCH else self.fallback

    def _best(self) -> str:
        """The level with the largest skill among those that were there often enough; the more general one of equals."""
        often = [name for name in reversed(SCORED_LEVELS) if self._sums[2, _NAMES.index(name)] >= MIN_WEIGHT]
        return max(often, key=self._skill_of, default=REFERENCE)

    def _skill_of(self, name: str) -> float:
        own, reference, _ = self._sums[:, _NAMES.index(name)].tolist()
        return _skill(own, reference)


class Scoreboard:
    """The scores by model; those of the models beyond the first `MAX_MODELS` are one."""

    def __init__(self) -> None:
        self._models: dict[str, ModelScores] = {}

    def judge(self, prediction: Prediction, request: Request, outcome: Outcome) -> Finished:
        """Hold a prediction against the length that came."""
        found = score(prediction, request.features, outcome)
        turn = None if found is None else self.add(request.model, found)
        return Finished(prediction.distribution.mean(), found, turn)

    def add(self, model: str, found: Score) -> Turn | None:
        """One more score of a model; the turn that its predictions take by it."""
        name = self._name(model)
        scores = self._models.setdefault(name, ModelScores())
        if not scores.add(found):
            return None
        chain = scores.level(MIXTURE)
        return Turn(name, scores.fallback, chain.skill if chain else 0.0)

    def fallback(self, model: str) -> str | None:
        """The level that is to be used alone; None for the whole chain."""
        scores = self._models.get(self._name(model))
        return scores.fallback if scores else None

    def calibrations(self) -> Iterator[tuple[str, Calibration]]:
        """Every model's, in order of appearance."""
        for name, scores in self._models.items():
            yield name, scores.calibration()

    def _name(self, model: str) -> str:
        return model if model in self._models or len(self._models) < MAX_MODELS else OTHER


_NONE = (0.0, 0.0, 0.0)


def _skill(own: float, reference: float) -> float:
    """Of sums of CRPS; 0 where the global level made no error that could be undercut."""
    return 1.0 - own / reference if reference > 1e-9 else 0.0
