"""Lengths that change: older records count for less then, and only then."""

import math
from collections.abc import Iterator

import numpy as np
import pytest

from sagesched.drift import Drift
from sagesched.gittins import Stopping
from sagesched.history import Vector
from sagesched.ranking import Ranking
from sagesched.request import Outcome, Request
from sagesched.scoring import crps
from sagesched.settings import decode

DIMENSIONS, TOPICS, SPREAD = 32, 40, 0.3
EVEN = (0.1,) * 10
LONG = (0.0,) * 9 + (1.0,)


class Traffic:
    """Topics, each with a median length of its own; all lengths may be scaled."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.centres = self.rng.normal(size=(TOPICS, DIMENSIONS))
        self.medians = np.exp(self.rng.normal(5.0, 0.8, TOPICS))
        self.scale = 1.0

    def __iter__(self) -> Iterator[tuple[Vector, int]]:
        while True:
            topic = self.rng.integers(TOPICS)
            vector = self.centres[topic] + 0.5 * self.rng.normal(size=DIMENSIONS)
            length = self.scale * self.medians[topic] * np.exp(SPREAD * self.rng.normal())
            yield (vector / np.linalg.norm(vector)).astype(np.float32), max(1, round(length))


def served(ranking: Ranking, traffic: Traffic, count: int) -> float:
    """So many requests, one after the other; 1 - CRPS over that of knowing all lengths of the topics but not which."""
    flat = np.exp(traffic.rng.normal(5.0, 0.8, 2000) + SPREAD * traffic.rng.normal(size=2000)) * traffic.scale
    own = reference = 0.0
    for number, (vector, tokens) in zip(range(count), traffic, strict=False):
        request = Request(id=f"{number}", model="m", prompt_tokens=50)
        ticket = ranking.admit(request, vector, now_s=0.0)
        own += crps(ticket.prediction.distribution, tokens)
        reference += np.abs(flat - tokens).mean() - 0.5 * np.abs(flat[:1000] - flat[1000:]).mean()
        ranking.start(request.id, 0.0)
        ranking.finish(request.id, Outcome(output_tokens=tokens), 1.0)
    return 1.0 - own / reference


def new_ranking() -> Ranking:
    settings = decode({"history": {"windowRows": 4000}})
    return Ranking(settings, stopping=Stopping.NEVER, dimensions=DIMENSIONS)


@pytest.mark.parametrize("scale", [2.0, 0.5])
def test_when_lengths_double_or_halve_skill_is_back_within_a_thousand_requests(scale: float) -> None:
    ranking, traffic = new_ranking(), Traffic(1)
    served(ranking, traffic, 3000)
    before = served(ranking, traffic, 300)
    assert ranking.changes == 0
    assert before > 0.4
    traffic.scale = scale
    at_once = served(ranking, traffic, 50)
    served(ranking, traffic, 750)
    after = served(ranking, traffic, 200)
    assert at_once < 0.7 * before, "it is a change that misleads"
    assert ranking.changes >= 1
    assert after > 0.9 * before, (before, at_once, after)


def test_what_older_records_say_is_kept_while_it_is_right() -> None:
    """Lengths that fall evenly seldom begin a trial, and a trial that nothing wins changes nothing."""
    drift, rng, trials = Drift(), np.random.default_rng(2), 0
    for number in range(3000):
        drift.fell("m", np.eye(10)[rng.integers(10)].tolist(), 0.0, number)
        if drift.rivals("m"):
            trials += 1
            for _ in range(40):
                assert drift.tried("m", [10.0, 10.0, 9.9], number) is None, "no better"
    assert trials <= 6
    assert drift.rivals("other") == []


@pytest.mark.parametrize(
    ("scores", "won"), [((9.0, 9.9), 0), ((9.5, 9.0), 1), ((9.9, 9.8), None), ((12.0, 11.0), None)]
)
def test_a_trial_is_won_by_predicting_clearly_better(scores: tuple[float, float], won: int | None) -> None:
    drift = Drift()
    for number in range(100):
        drift.fell("m", EVEN, 0.0, number)
    for number in range(100, 120):
        drift.fell("m", LONG, math.log(3.0), number)
    rivals = drift.rivals("m")
    assert {rival.before for rival in rivals} == {99}, "what was learnt since the lengths changed is not on trial"
    assert [rival.factor for rival in rivals] == pytest.approx([1.0, 3.0])
    verdicts = [drift.tried("m", [10.0, *scores], 200) for _ in range(40)]
    assert verdicts == [None] * 39 + [None if won is None else rivals[won]]
    assert drift.rivals("m") == []


def test_any_number_of_models_is_bounded() -> None:
    drift = Drift()
    for number in range(1000):
        drift.fell(f"m{number}", LONG, 1.0, 1)
    assert len(drift._watches) <= 32
