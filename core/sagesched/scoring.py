"""How good a prediction was, once the length is known (docs/method.md section 8). Pure arithmetic."""

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sagesched.lengths import FloatArray, LengthDistribution
from sagesched.predictor import Prediction
from sagesched.request import Features, Outcome

DECILES = 10
MIXTURE = "mixture"
"""Stands beside the names of the levels for the whole chain."""
REFERENCE = "global"
"""The level that skill is measured against."""
SCORED_LEVELS = ("similar", "nearest", "class", REFERENCE)


_EDGES: list[float] = np.linspace(0.0, 1.0, DECILES + 1).tolist()


class Score(NamedTuple):
    """What a length says of the prediction that had been made of it."""

    pit_deciles: tuple[float, ...]
    """10, sum 1: the tenths of the distribution that was used in which the length fell."""
    crps_tokens: dict[str, float]
    """By level, and MIXTURE for the whole chain; the levels that the prediction had."""


def score(prediction: Prediction, features: Features, outcome: Outcome) -> Score | None:
    """The score of one prediction; None where the length tells nothing of it, or where no level is there to compare."""
    observed = observed_tokens(features, outcome)
    names = {level.name for level in prediction.levels}
    if observed is None or REFERENCE not in names:
        return None
    cap = _cap(features)
    crps_of = {
        level.name: crps(level.distribution, observed, cap)
        for level in prediction.levels
        if level.name in SCORED_LEVELS
    }
    crps_of[MIXTURE] = crps(prediction.instead_of or prediction.distribution, observed, cap)
    return Score(tuple(pit_deciles(prediction.distribution, observed).tolist()), crps_of)


def observed_tokens(features: Features, outcome: Outcome) -> float | None:
    """The length on the scale on which it was predicted, capped by `max_tokens`; None where it is not known.

    What `max_tokens` cut is known on that scale: it is the cap, whatever would have followed. What something else cut
    is not, nor is the length of one choice where only the mean of several is counted.
    """
    cap = _cap(features)
    if features.choices > 1 or (outcome.censored and outcome.output_tokens < cap):
        return None
    return min(max(1.0, float(outcome.output_tokens)), cap)


def crps(distribution: LengthDistribution, observed: float, cap_tokens: float = math.inf) -> float:
    """The continuous ranked probability score below the cap, in tokens: the integral of (F(x) - [x >= observed])^2.

    0 for a point at the truth, the absolute error of any other point. Exact, in O(n) over atoms that ascend.
    """
    below = distribution.truncate(cap_tokens)
    off = float(below.weights @ np.abs(below.tokens - min(observed, cap_tokens)))
    return max(0.0, off - below.half_difference)


def pit_deciles(distribution: LengthDistribution, observed: float) -> FloatArray:
    """(10,), sum 1: where in its distribution a length fell; an atom is spread evenly over the jump that it makes.

    The mean over lengths drawn from the distribution is exactly a tenth each, however coarse the atoms (the
    nonrandomised PIT of Czado, Gneiting and Held 2009).
    """
    low, high = distribution.cdf(math.nextafter(observed, 0.0)), distribution.cdf(observed)
    shares: FloatArray = np.zeros(DECILES)
    if high - low < 1e-12:
        shares[min(DECILES - 1, int(high * DECILES))] = 1.0
        return shares
    edges = [min(max(edge, low), high) for edge in _EDGES]
    return np.array([(right - left) / (high - low) for left, right in pairwise(edges)])


def _cap(features: Features) -> float:
    return math.inf if features.max_tokens is None else max(1.0, float(features.max_tokens))
