"""Laws of the back-off chain. No constant of it is asserted: those are measured, and may move."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagesched.history import HistoryWindow, Vector
from sagesched.predictor import PRIOR, Prediction, Predictor
from sagesched.request import Features, Outcome, Request
from sagesched.settings import Scheduling

LAW = settings(max_examples=40, deadline=None)
DIMENSIONS = 8
Maker = Callable[[int], Vector]
Served = tuple[int, int, bool]
served = st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3000), st.booleans()), max_size=60)


def asking(prompt_tokens: int = 20, tenant: str = "", **features: object) -> Request:
    return Request(id="r", model="m", tenant=tenant, prompt_tokens=prompt_tokens, features=Features(**features))


def taught(of: list[Served], vector: Maker, request: Request | None = None, capacity: int = 300) -> Predictor:
    predictor = Predictor(Scheduling(), HistoryWindow(capacity, DIMENSIONS))
    for which, tokens, censored in of:
        predictor.learn(request or asking(), vector(which), Outcome(output_tokens=tokens, censored=censored))
    return predictor


def same(one: Prediction, other: Prediction) -> bool:
    return (
        one.distribution.tokens.tolist() == other.distribution.tokens.tolist()
        and one.distribution.weights.tolist() == other.distribution.weights.tolist()
        and [(a.name, a.share) for a in one.levels] == [(b.name, b.share) for b in other.levels]
    )


@LAW
@given(served, st.integers(0, 6), st.booleans())
def test_the_shares_are_a_partition(vector: Maker, of: list[Served], which: int, blind: bool) -> None:
    prediction = taught(of, vector).predict(asking(), None if blind else vector(which))
    assert sum(level.share for level in prediction.levels) == pytest.approx(1)
    assert all(level.share > 0 for level in prediction.levels)
    assert len({level.name for level in prediction.levels}) == len(prediction.levels)
    assert prediction.source in {level.name for level in prediction.levels}
    assert prediction.distribution.weights.sum() == pytest.approx(1)


@LAW
@given(served, st.integers(0, 6))
def test_the_mean_is_the_levels_by_their_shares(vector: Maker, of: list[Served], which: int) -> None:
    prediction = taught(of, vector).predict(asking(), vector(which))
    mean = sum(level.share * level.distribution.mean() for level in prediction.levels)
    assert prediction.distribution.mean() == pytest.approx(mean)


def test_without_history_it_is_the_prior(vector: Maker) -> None:
    for embedding in (None, vector(1)):
        prediction = taught([], vector).predict(asking(), embedding)
        assert prediction.source == "prior"
        assert [(level.name, level.share) for level in prediction.levels] == [("prior", 1.0)]
        assert prediction.distribution.tokens.tolist() == PRIOR.tokens.tolist()


@LAW
@given(st.integers(1, 2000), st.integers(1, 40), st.integers(1, 40))
def test_the_same_prompt_again_and_again_comes_to_be_believed(vector: Maker, tokens: int, few: int, more: int) -> None:
    def share(times: int) -> tuple[float, float]:
        prediction = taught([(3, tokens, False)] * times, vector).predict(asking(), vector(3))
        similar = next(level for level in prediction.levels if level.name == "similar")
        assert similar.distribution.tokens.tolist() == [tokens]
        return similar.share, abs(prediction.distribution.mean() - tokens)

    (less, far), (larger, near) = share(few), share(few + more)
    assert larger > less
    assert near <= far + 1e-6
    assert share(100)[0] > 0.5, "in the end its level dominates"


def test_numbers_asked_for_tell_prompts_of_one_embedding_apart(vector: Maker) -> None:
    predictor = taught([], vector)
    for _ in range(20):
        for number, tokens in ((250.0, 300), (6000.0, 4000)):
            predictor.learn(asking(asked_number=number), vector(1), Outcome(output_tokens=tokens))
    few, many, none = (
        predictor.predict(asking(asked_number=number), vector(1)).distribution for number in (250.0, 6000.0, None)
    )
    assert few.mean() < none.mean() < many.mean()
    assert few.quantile(0.5) == 300
    assert many.quantile(0.5) == 4000


def test_one_prompt_that_asked_for_far_less_falls_back_to_the_class_of_what_is_asked(vector: Maker) -> None:
    predictor = taught([], vector)
    for _ in range(40):
        predictor.learn(asking(asked_number=270.0), vector(1), Outcome(output_tokens=300))
    for k in range(200):
        predictor.learn(asking(asked_number=6500.0), vector(2 + k % 5), Outcome(output_tokens=4000))
    assert predictor.predict(asking(asked_number=6500.0), vector(1)).distribution.mean() > 3000


def test_history_that_names_no_model_serves_each_until_it_has_enough_of_its_own(vector: Maker) -> None:
    predictor = taught([], vector)
    for k in range(30):
        predictor.learn(Request(id="s"), vector(k), Outcome(output_tokens=100))
    for _ in range(5):
        predictor.learn(asking(), vector(1), Outcome(output_tokens=2000))
    assert predictor.predict(asking(), vector(1)).distribution.mean() < 300
    for _ in range(30):
        predictor.learn(asking(), vector(1), Outcome(output_tokens=2000))
    assert predictor.predict(asking(), vector(1)).distribution.mean() > 1500
    assert len(predictor.predict(asking(tenant="other"), vector(1)).neighbours.rows) == 0


def test_a_prompt_cannot_teach_efforts_by_asking(vector: Maker) -> None:
    predictor = taught([(1, 100, False)] * 5, vector)
    for k in range(500):
        predictor.predict(asking(effort=f"made up {k}"), vector(1))
    for tokens, effort in ((2000, "high"), (100, "low")):
        for _ in range(20):
            predictor.learn(asking(effort=effort), vector(1), Outcome(output_tokens=tokens))
    high, low = (predictor.predict(asking(effort=e), vector(1)).distribution.mean() for e in ("high", "low"))
    assert high > 3 * low


@pytest.mark.parametrize("features", [{"tools": True}, {"effort": "high"}])
def test_other_features_tell_them_apart_too(vector: Maker, features: dict[str, object]) -> None:
    predictor = taught([(1, 100, False)] * 20, vector)
    for _ in range(20):
        predictor.learn(asking(**features), vector(1), Outcome(output_tokens=2000))
    plain, other = predictor.predict(asking(), vector(1)), predictor.predict(asking(**features), vector(1))
    assert plain.distribution.mean() < other.distribution.mean()


@LAW
@given(served.filter(bool), st.integers(0, 6), st.integers(0, 59))
def test_a_cut_output_counts_for_more_than_a_whole_one(vector: Maker, of: list[Served], which: int, cut: int) -> None:
    of = [(w, tokens, censored and k != cut % len(of)) for k, (w, tokens, censored) in enumerate(of)]
    as_whole = taught(of, vector).predict(asking(), vector(which)).distribution.mean()
    of[cut % len(of)] = (*of[cut % len(of)][:2], True)
    assert taught(of, vector).predict(asking(), vector(which)).distribution.mean() > as_whole


@LAW
@given(served, st.integers(0, 6), st.integers(1, 3000))
def test_max_tokens_caps_what_is_predicted(vector: Maker, of: list[Served], which: int, cap: int) -> None:
    predictor = taught(of, vector)
    free = predictor.predict(asking(), vector(which)).distribution
    capped = predictor.predict(asking(max_tokens=cap), vector(which)).distribution
    assert capped.tokens[-1] <= cap
    assert capped.mean() <= free.mean() + 1e-9
    assert capped.cdf(cap - 1) == pytest.approx(free.cdf(cap - 1))


@LAW
@given(served, served, st.integers(0, 6))
def test_another_tenant_s_history_changes_nothing(
    vector: Maker, own: list[Served], other: list[Served], which: int
) -> None:
    alone, beside = taught(own, vector), taught(other, vector, asking(tenant="other"))
    for one, tokens, censored in own:
        beside.learn(asking(), vector(one), Outcome(output_tokens=tokens, censored=censored))
    assert same(alone.predict(asking(), vector(which)), beside.predict(asking(), vector(which)))


@LAW
@given(served.filter(bool), served)
def test_what_is_cached_does_not_outlive_as_many_records_as_there_are(
    vector: Maker, before: list[Served], after: list[Served]
) -> None:
    """The levels without an embedding are cached; once as much again was learnt they are those of a fresh predictor."""
    predictor = taught(before, vector)
    predictor.predict(asking(), None)
    more = [*after, *[(0, 2500, False)] * len(before)]
    for which, tokens, censored in more:
        predictor.learn(asking(), vector(which), Outcome(output_tokens=tokens, censored=censored))
    assert same(predictor.predict(asking(), None), taught([*before, *more], vector).predict(asking(), None))


def test_the_first_record_is_heeded_at_once(vector: Maker) -> None:
    predictor = taught([], vector)
    before = predictor.predict(asking(), None).distribution.mean()
    predictor.learn(asking(), vector(0), Outcome(output_tokens=5000))
    assert predictor.predict(asking(), None).distribution.mean() > before


def test_the_engine_s_count_of_the_prompt_outweighs_the_estimate(vector: Maker) -> None:
    predictor = taught([], vector)
    predictor.learn(asking(prompt_tokens=5), vector(0), Outcome(output_tokens=700, prompt_tokens=4000))
    names = {level.name for level in predictor.predict(asking(prompt_tokens=4000), None).levels}
    assert "class" in names
    assert "class" not in {level.name for level in predictor.predict(asking(prompt_tokens=5), None).levels}


def test_many_classes_do_not_pile_up(vector: Maker) -> None:
    predictor = taught([(0, 10, False)], vector)
    for k in range(3000):
        predictor.predict(asking(tenant=str(k)), None)
    assert len(predictor._backgrounds) <= 1000
