"""Laws of the scores: exact, proper, and uniform where predictions are true."""

import math

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from sagesched.history import NO_NEIGHBOURS
from sagesched.lengths import LengthDistribution
from sagesched.predictor import Level, Prediction
from sagesched.request import Features, Outcome
from sagesched.scoring import MIXTURE, crps, observed_tokens, pit_deciles, score

atoms = st.lists(st.tuples(st.integers(1, 60), st.integers(1, 20)), min_size=1, max_size=12)


def law(of: list[tuple[int, int]]) -> LengthDistribution:
    tokens, weights = zip(*of, strict=True)
    return LengthDistribution.from_samples(tokens, weights=np.array(weights, dtype=float))


def integral(distribution: LengthDistribution, observed: float, cap: float) -> float:
    """By its definition, over the whole tokens, between which nothing changes."""
    return sum((distribution.cdf(x) - (x >= observed)) ** 2 for x in range(int(min(cap, 80))))


@given(atoms, st.integers(1, 70), st.none() | st.integers(1, 70))
def test_crps_is_the_integral(of: list[tuple[int, int]], observed: int, cap: int | None) -> None:
    cap_tokens = math.inf if cap is None else cap
    assert crps(law(of), observed, cap_tokens) == pytest.approx(integral(law(of), observed, cap_tokens), abs=1e-9)


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_the_crps_of_a_point_is_its_absolute_error(told: int, observed: int) -> None:
    assert crps(LengthDistribution.point(told), observed) == abs(told - observed)


@given(atoms, atoms, st.none() | st.integers(1, 70))
def test_nothing_scores_better_in_the_mean_than_the_truth(
    true: list[tuple[int, int]], other: list[tuple[int, int]], cap: int | None
) -> None:
    """Also where some lengths are cut by a cap: what is cut is scored as what it is, the cap."""
    cap_tokens = math.inf if cap is None else float(cap)
    truth = law(true)

    def expected(of: LengthDistribution) -> float:
        drawn = zip(truth.tokens, truth.weights, strict=True)
        return sum(weight * crps(of, min(length, cap_tokens), cap_tokens) for length, weight in drawn)

    assert expected(truth) <= expected(law(other)) + 1e-9


def test_another_prediction_scores_worse_than_the_truth() -> None:
    truth, other = law([(10, 1), (20, 1)]), law([(10, 3), (20, 1)])
    means = [(crps(of, 10) + crps(of, 20)) / 2 for of in (truth, other)]
    assert means[0] < means[1]


def test_scoring_an_unknown_length_up_to_where_it_was_cut_would_favour_what_is_false() -> None:
    """Why requests that something else cut are left out: half of these are cut at 10, and nobody knows which would be.

    The whole ones count in full, the cut ones as the integral of F^2 to the cut; that score prefers too short a law.
    """
    truth, short = law([(10, 2), (20, 2)]), law([(10, 3), (20, 1)])
    seen = [(10.0, False), (10.0, False), (20.0, False), (11.0, True)]

    def improper(of: LengthDistribution) -> float:
        return sum(crps(of, length, length if cut else math.inf) for length, cut in seen)

    assert improper(short) < improper(truth)


@given(atoms)
def test_lengths_drawn_from_the_prediction_are_uniform_over_its_tenths(of: list[tuple[int, int]]) -> None:
    truth = law(of)
    mean = sum(weight * pit_deciles(truth, length) for length, weight in zip(truth.tokens, truth.weights, strict=True))
    assert np.asarray(mean) == pytest.approx(0.1)


@given(atoms, st.integers(1, 70))
def test_a_length_falls_once(of: list[tuple[int, int]], observed: int) -> None:
    shares = pit_deciles(law(of), observed)
    assert shares.sum() == pytest.approx(1)
    assert (shares >= 0).all()


def test_lengths_beside_every_atom_are_at_the_ends() -> None:
    told = law([(10, 1), (20, 1)])
    assert [int(pit_deciles(told, length).argmax()) for length in (5, 15, 25)] == [0, 5, 9]


@pytest.mark.parametrize(
    ("features", "outcome", "observed"),
    [
        (Features(), Outcome(output_tokens=7), 7),
        (Features(), Outcome(output_tokens=0), 1),
        (Features(), Outcome(output_tokens=7, censored=True), None),
        (Features(max_tokens=7), Outcome(output_tokens=7, censored=True), 7),
        (Features(max_tokens=9), Outcome(output_tokens=7, censored=True), None),
        (Features(max_tokens=9), Outcome(output_tokens=7), 7),
        (Features(max_tokens=5), Outcome(output_tokens=7), 5),
        (Features(choices=2), Outcome(output_tokens=7), None),
    ],
)
def test_what_is_known_of_a_length(features: Features, outcome: Outcome, observed: float | None) -> None:
    assert observed_tokens(features, outcome) == observed


@given(atoms, atoms, st.integers(1, 70), st.none() | st.integers(1, 70))
def test_every_level_is_scored_under_the_request_s_own_cap(
    near: list[tuple[int, int]], of_all: list[tuple[int, int]], length: int, cap: int | None
) -> None:
    assume(cap is None or length <= cap)
    levels = (Level("nearest", 0.5, 3.0, law(near)), Level("global", 0.5, 9.0, law(of_all)))
    mixture = LengthDistribution.mix((level.share, level.atoms) for level in levels)
    found = score(
        Prediction(mixture.truncate(cap), levels, NO_NEIGHBOURS),
        Features(max_tokens=cap),
        Outcome(output_tokens=length, censored=length == cap),
    )
    assert found is not None
    expected = {"nearest": law(near), "global": law(of_all), MIXTURE: mixture}
    assert found.crps_tokens == pytest.approx(
        {name: crps(of.truncate(cap), length, math.inf) for name, of in expected.items()}, abs=1e-9
    )


def test_a_prediction_without_history_has_no_score() -> None:
    prior = law([(10, 1)])
    prediction = Prediction(prior, (Level("prior", 1.0, 0.0, prior),), NO_NEIGHBOURS)
    assert score(prediction, Features(), Outcome(output_tokens=7)) is None
