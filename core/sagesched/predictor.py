"""From a prompt to the distribution of its output length: a back-off chain over the history window.

Levels, most particular first: records above the similarity threshold; the nearest k; the records of the same class (the
amount of output asked for where the prompt names one, else the input length); all records of the model and tenant; a
fixed prior. Each level takes the share `n / (n + kappa)` of what the levels before it left over, `n` being its
effective number of samples, and the prior takes the rest. docs/adr/0002-back-off-chain.md has the figures behind the
constants.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sagesched.history import NO_NEIGHBOURS, NO_NUMBER, Group, HistoryWindow, Neighbours, Rows, Vector, length_class
from sagesched.lengths import FloatArray, LengthDistribution
from sagesched.request import Features, Outcome, Request
from sagesched.settings import Scheduling

KAPPA = {"similar": 4.0, "nearest": 10.0, "class": 30.0, "global": 10.0}
"""Samples at which a level is trusted as much as everything after it."""

BANDWIDTH = 0.12
"""Similarity over which a neighbour's weight falls by a factor e, from the nearest one down."""

NUMBER_SCALE = 0.5
"""ln(asked / asked) over which a neighbour's weight falls by a factor e."""

MISMATCH = {"number": 0.3, "effort": 0.1, "tools": 0.3}
"""Weight of a neighbour that names a number where the request does not (or the other way), and so on."""

EVERY_CLASS = -1
LEVEL_ATOMS = 64
REFRESH_RECORDS = 64
MAX_SUMMARIES = 1000

PRIOR = LengthDistribution(
    np.array([16.0, 48.0, 96.0, 160.0, 224.0, 288.0, 352.0, 448.0, 640.0, 1200.0]), np.full(10, 0.1)
)
"""With no history at all: a chat answer, half of them under 250 tokens, a tenth about 1,200."""


@dataclass(frozen=True, slots=True)
class Level:
    """One level's part in a prediction."""

    name: str
    share: float
    samples: float
    distribution: LengthDistribution


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is believed of one request's output length, in tokens of one choice, and why."""

    distribution: LengthDistribution
    levels: tuple[Level, ...]
    neighbours: Neighbours

    @property
    def source(self) -> str:
        """The level with the largest share."""
        return max(self.levels, key=lambda level: level.share).name


class Predictor:
    """Predicts from a history window, and teaches it."""

    def __init__(self, settings: Scheduling, window: HistoryWindow) -> None:
        self._settings = settings
        self.window = window
        self._summaries: dict[tuple[Group, int], _Summary] = {}
        self._learnt = 0

    def predict(self, request: Request, embedding: Vector | None) -> Prediction:
        """The distribution of the request's output length. `embedding`: (dimensions,) unit float32; None when there is
        none, which leaves out the levels that need one."""
        group = Group(request.model, request.tenant)
        near = NO_NEIGHBOURS
        if embedding is not None:
            near = self.window.nearest(group, embedding, self._settings.neighbours, self._settings.similarity_threshold)
        levels: list[Level] = []
        left = 1.0
        for name, samples, distribution in self._estimates(request, group, near):
            share = left * samples / (samples + KAPPA[name])
            levels.append(Level(name, share, samples, distribution))
            left -= share
        levels.append(Level("prior", left, 0.0, PRIOR))
        mixture = LengthDistribution.mix([(level.share, level.distribution) for level in levels])
        return Prediction(mixture.truncate(request.features.max_tokens), tuple(levels), near)

    def learn(self, request: Request, embedding: Vector, outcome: Outcome) -> None:
        """Remember how the request ended."""
        prompt_tokens = request.prompt_tokens if outcome.prompt_tokens is None else outcome.prompt_tokens
        self.window.append(
            Group(request.model, request.tenant),
            embedding,
            prompt_tokens=prompt_tokens,
            output_tokens=outcome.output_tokens,
            censored=outcome.censored,
            features=request.features,
        )
        self._learnt += 1

    def _estimates(
        self, request: Request, group: Group, near: Neighbours
    ) -> Iterator[tuple[str, float, LengthDistribution]]:
        """Each level that has samples: its name, its effective number of samples, its distribution."""
        if near.rows.size:
            weights = self._kernel(request.features, near)
            above = near.similarities >= self._settings.similarity_threshold
            for name, chosen in (("similar", above), ("nearest", ~above)):
                if chosen.any():
                    yield name, _effective(weights[chosen]), self._samples(near.rows[chosen], weights[chosen])
        own = length_class(request.prompt_tokens, request.features.asked_number)
        for name, chosen_class in (("class", own), ("global", EVERY_CLASS)):
            summary = self._summary(group, chosen_class)
            if summary.distribution is not None:
                yield name, summary.samples, summary.distribution

    def _kernel(self, features: Features, near: Neighbours) -> FloatArray:
        """A weight for each neighbour: how similar its prompt is, and whether it asked for as much."""
        weights: FloatArray = np.exp((near.similarities - near.similarities[0]) / BANDWIDTH)
        window, rows = self.window, near.rows
        asked = window.asked_number[rows]
        named = asked != NO_NUMBER
        if features.asked_number is None:
            weights[named] *= MISMATCH["number"]
        else:
            apart = np.abs(np.log(np.where(named, asked, 1.0) / features.asked_number))
            weights *= np.where(named, np.exp(-apart / NUMBER_SCALE), MISMATCH["number"])
        weights[window.tools[rows] != features.tools] *= MISMATCH["tools"]
        weights[window.effort[rows] != window.effort_number(features.effort)] *= MISMATCH["effort"]
        return weights

    def _samples(self, rows: Rows, weights: FloatArray) -> LengthDistribution:
        window = self.window
        return LengthDistribution.from_samples(
            window.output_tokens[rows], window.censored[rows], np.maximum(weights, 1e-9)
        )

    def _summary(self, group: Group, chosen_class: int) -> "_Summary":
        """A whole class in a few atoms, made anew as records are learnt."""
        known = self._summaries.get((group, chosen_class))
        if known is None or self._learnt >= known.due:
            rows = self.window.rows(group)
            if chosen_class != EVERY_CLASS:
                rows = rows[self.window.length_class[rows] == chosen_class]
            distribution = self._samples(rows, np.ones(rows.size)).compress(LEVEL_ATOMS) if rows.size else None
            known = _Summary(self._learnt + min(REFRESH_RECORDS, 1 + rows.size // 4), rows.size, distribution)
            if len(self._summaries) >= MAX_SUMMARIES:
                self._summaries.clear()
            self._summaries[group, chosen_class] = known
        return known


@dataclass(frozen=True, slots=True)
class _Summary:
    """A class's distribution, its samples, and the count of records learnt at which it is due again."""

    due: int
    samples: float
    distribution: LengthDistribution | None


def _effective(weights: FloatArray) -> float:
    """Kish's effective number of samples."""
    return float(weights.sum() ** 2 / (weights @ weights))
