"""Laws of falling back: never with good predictions, soon with poisoned ones, and back again."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagesched.history import Vector
from sagesched.ranking import Ranking
from sagesched.request import Outcome, Request
from sagesched.scoreboard import MAX_MODELS, MIN_SCORED, OTHER, ModelScores, Scoreboard
from sagesched.scoring import MIXTURE, Score

FALLS_BACK_WITHIN = 160
"""Scores, of which the chain's are twice the global level's, after any past in which neither was larger."""
FEW = settings(max_examples=25, deadline=None)
tokens = st.floats(0, 1e4)


def scored(mixture: float, reference: float, **levels: float) -> Score:
    return Score(tuple(float(n == 3) for n in range(10)), {**levels, "global": reference, MIXTURE: mixture})


@FEW
@given(st.lists(st.tuples(tokens, st.floats(0, 1)), min_size=1, max_size=400))
def test_it_never_falls_back_while_no_score_is_worse_than_without_neighbours(past: list[tuple[float, float]]) -> None:
    board = ModelScores()
    assert not any(board.add(scored(reference * part, reference)) for reference, part in past)
    assert board.fallback is None


@FEW
@given(st.lists(st.floats(0, 1), max_size=300), st.floats(20, 1000), st.floats(2, 100))
def test_it_falls_back_soon_when_the_chain_does_harm(past: list[float], size: float, worse: float) -> None:
    board = ModelScores()
    for part in past:
        board.add(scored(size * part, size))
    taken = next(n for n in range(1, 1000) if board.add(scored(size * worse, size, nearest=3 * size)))
    assert taken <= FALLS_BACK_WITHIN
    assert board.fallback == "global"


@FEW
@given(st.integers(120, 400), st.floats(20, 1000), st.floats(1.1, 20), st.floats(0, 0.9))
def test_it_recovers_when_skill_returns_and_not_before(harm: int, size: float, worse: float, part: float) -> None:
    board = ModelScores()
    for _ in range(harm):
        board.add(scored(size * worse, size))
    assert board.fallback == "global"
    for _ in range(2000):
        board.add(scored(size * part, size))
        skill = board.level(MIXTURE).skill
        assert (board.fallback is None) == (skill > 0.02) or abs(skill - 0.02) < 1e-9
        if board.fallback is None:
            return
    pytest.fail("it never recovers")


def test_in_between_it_stays_as_it_is() -> None:
    board = ModelScores()
    for _ in range(300):
        board.add(scored(101, 100))
    assert board.fallback is None
    for _ in range(300):
        board.add(scored(120, 100))
    for _ in range(3000):
        board.add(scored(100, 100))
    assert board.fallback == "global"


def test_few_scores_decide_nothing() -> None:
    board = ModelScores()
    turned = [board.add(scored(500, 100)) for _ in range(MIN_SCORED)]
    assert turned == [False] * (MIN_SCORED - 1) + [True]


def test_less_than_a_token_is_no_harm() -> None:
    board = ModelScores()
    for _ in range(300):
        board.add(scored(0.9, 0.0))
    assert board.fallback is None


def test_it_falls_back_to_the_level_that_was_best() -> None:
    board = ModelScores()
    for _ in range(200):
        board.add(scored(150, 100, similar=400, nearest=300, **{"class": 80}))
    assert board.fallback == "class"
    for _ in range(600):
        board.add(scored(150, 100, similar=400, nearest=20, **{"class": 80}))
    assert board.fallback == "nearest"


def test_a_level_that_was_seldom_there_is_not_fallen_back_to() -> None:
    board = ModelScores()
    for n in range(300):
        board.add(scored(150, 100, **({"similar": 1} if n % 20 == 0 else {})))
    assert board.fallback == "global"


def test_coverage_is_that_of_the_inner_tenths() -> None:
    board = ModelScores()
    assert board.calibration().levels == {}
    for decile in range(10):
        board.add(Score(tuple(float(n == decile) for n in range(10)), {"global": 1.0, MIXTURE: 1.0}))
    assert board.calibration().coverage_80 == pytest.approx(0.8, abs=0.01)


def test_models_beyond_the_first_are_counted_as_one() -> None:
    board = Scoreboard()
    for n in range(5 * MAX_MODELS):
        board.add(f"model {n}", scored(1, 1))
    names = [name for name, _ in board.calibrations()]
    assert (len(names), names[-1]) == (MAX_MODELS + 1, OTHER)
    assert dict(board.calibrations())[OTHER].scored == 4 * MAX_MODELS


class Traffic:
    """Four topics whose prompts tell their lengths, served one by one."""

    def __init__(self, ranking: Ranking, vector: Callable[[int], Vector]) -> None:
        self.ranking, self.vector = ranking, vector
        self.rng = np.random.default_rng(5)
        self.served = 0

    def serve(self, count: int, *, shift: int) -> list[int]:
        """`shift`: by how many topics prompts and lengths are apart. Returns when predictions turned."""
        turned = []
        for _ in range(count):
            topic = int(self.rng.integers(4))
            length = int(100 * 4 ** ((topic + shift) % 4) * self.rng.uniform(0.8, 1.25))
            request = Request(id=f"r{self.served}", model="m", prompt_tokens=20)
            self.served += 1
            self.ranking.admit(request, self.vector(topic), 0.0)
            self.ranking.start(request.id, 0.0)
            if self.ranking.finish(request.id, Outcome(output_tokens=length), 1.0).turn:
                turned.append(self.served)
        return turned


def test_a_ranking_with_good_neighbours_never_falls_back(ranking_of, vector) -> None:
    traffic = Traffic(ranking_of(history={"windowRows": 500}), vector)
    assert traffic.serve(1500, shift=0) == []
    found = dict(traffic.ranking.scoreboard.calibrations())["m"]
    assert found.levels[MIXTURE].skill > 0.5
    assert found.levels["nearest"].skill > 0.5 or found.levels["similar"].skill > 0.5
    assert found.coverage_80 == pytest.approx(0.8, abs=0.1)


def test_a_ranking_with_poisoned_neighbours_falls_back_and_recovers(ranking_of, vector) -> None:
    """A history that says of each topic what is true of another, and is not learnt over."""
    ranking = ranking_of(history={"windowRows": 500, "learn": False})
    for n in range(400):
        told = Outcome(output_tokens=100 * 4 ** (n % 4))
        ranking.learn(Request(id="h", model="m", prompt_tokens=20), vector(n % 4), told)
    traffic = Traffic(ranking, vector)
    assert traffic.serve(300, shift=0) == []
    (turned,) = traffic.serve(400, shift=2)
    assert turned - 300 <= FALLS_BACK_WITHIN
    probe = ranking.predictor.predict(Request(id="p", model="m", prompt_tokens=20), vector(0), "global")
    ticket = ranking.admit(Request(id="q", model="m", prompt_tokens=20), vector(0), 0.0)
    assert ticket.prediction.source == ranking.explain("q").alone == ranking.scoreboard.fallback("m")
    assert ticket.prediction.source in ("class", "global")
    assert ticket.prediction.distribution.mean() == pytest.approx(probe.distribution.mean())
    ranking.drop("q", 0.0)
    assert len(traffic.serve(1500, shift=0)) == 1
    assert ranking.scoreboard.fallback("m") is None


def test_a_fallback_is_of_one_model_alone(ranking_of, vector) -> None:
    ranking = ranking_of()
    for _ in range(MIN_SCORED):
        ranking.scoreboard.add("bad", scored(500, 100))
    assert (ranking.scoreboard.fallback("bad"), ranking.scoreboard.fallback("good")) == ("global", None)
