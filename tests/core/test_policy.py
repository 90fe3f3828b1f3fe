"""Laws of the policies: what a key may depend on, and how it moves with what it depends on."""

import math
from decimal import Decimal, localcontext

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sagesched.calibration import Unit
from sagesched.gittins import Stopping
from sagesched.lengths import LengthDistribution
from sagesched.policy import POLICIES, Belief, Policy, Score, boosted, policy_of
from sagesched.request import Features, Request
from sagesched.settings import Scheduling

LAW = settings(max_examples=60, deadline=None)
units = st.builds(Unit, st.floats(1, 1e8), st.floats(1e-3, 100), st.just(0.0) | st.floats(1e-3, 1))
amounts = st.floats(1, 1e9)
tokens = st.floats(1, 1e4)
scores = st.builds(Score, amounts, tokens)
arrivals = st.floats(0, 1e5)
weights = st.floats(0.01, 100)
boosts = st.floats(1e-3, 10)
names = st.sampled_from(sorted(POLICIES))
distributions = st.lists(st.integers(1, 3000), min_size=1, max_size=12).map(LengthDistribution.from_samples)


def request(arrival_s: float = 0.0, weight: float = 1.0, prompt_tokens: int = 100, choices: int = 1) -> Request:
    return Request(
        id="r", arrival_s=arrival_s, weight=weight, prompt_tokens=prompt_tokens, features=Features(choices=choices)
    )


def belief(of: LengthDistribution, stopping: Stopping = Stopping.BOUNDARIES, **asked: int) -> Belief:
    return Belief(request(**asked), of, stopping, Scheduling())


def sagesched(boost: float) -> Policy:
    return policy_of(Scheduling(boost=boost))


@LAW
@given(scores, scores, arrivals, arrivals, weights, weights, units)
def test_without_boost_the_order_is_the_index_over_the_weight(
    a: Score, b: Score, at: float, bt: float, aw: float, bw: float, unit: Unit
) -> None:
    assume(abs(a.amount / aw - b.amount / bw) > 1e-9 * (a.amount / aw))
    plain = sagesched(0.0)
    goes_first = plain.key(request(at, aw), a, unit) < plain.key(request(bt, bw), b, unit)
    assert goes_first == (a.amount / aw < b.amount / bw), "whatever the arrivals and the unit"


@LAW
@given(names, boosts, scores, arrivals, weights, st.floats(1, 100), units)
def test_more_weight_never_goes_later(
    name: str, boost: float, score: Score, arrival: float, weight: float, more: float, unit: Unit
) -> None:
    policy = policy_of(Scheduling(policy=name, boost=boost))
    assert policy.key(request(arrival, weight * more), score, unit) <= policy.key(request(arrival, weight), score, unit)


@LAW
@given(boosts, scores, weights, weights, arrivals, units)
def test_a_weight_is_a_part_of_the_cost(
    boost: float, score: Score, weight: float, other: float, arrival: float, unit: Unit
) -> None:
    policy = sagesched(boost)
    one, two = (policy.key(request(arrival, w), score._replace(amount=score.amount * w), unit) for w in (weight, other))
    assert one == pytest.approx(two, rel=1e-6, abs=1e-6)


@LAW
@given(boosts, scores, arrivals, st.floats(1e-3, 1e4), units)
def test_of_equal_scores_the_earlier_goes_first(
    boost: float, score: Score, arrival: float, later: float, unit: Unit
) -> None:
    policy = sagesched(boost)
    assume(abs(policy.key(request(arrival), score, unit)) < 1e9 * later)
    assert policy.key(request(arrival), score, unit) < policy.key(request(arrival + later), score, unit)


@LAW
@given(boosts, st.floats(0, 20), st.floats(1.01, 100), st.floats(0, 100), tokens, units)
def test_of_equal_arrivals_and_lengths_the_smaller_goes_first(
    boost: float, x: float, factor: float, arrival: float, length: float, unit: Unit
) -> None:
    """Strictly while the boost tells scores apart, `x` being the smaller one's exponent; never the other way round."""
    policy = sagesched(boost)
    amount = max(x, 1e-6) * unit.mean_cost / boost
    small, large = (policy.key(request(arrival), Score(amount * by, length), unit) for by in (1, factor))
    assert small <= large
    assert small < large or x > 10 or unit.mean_service_s / boost < 1e-2


@LAW
@given(boosts, amounts, tokens, st.floats(0, 1e4), arrivals, units)
def test_what_runs_longer_at_equal_cost_never_goes_later(
    boost: float, amount: float, length: float, more: float, arrival: float, unit: Unit
) -> None:
    """Its last token is held back no more than the other's, so it must start as much earlier as it runs longer."""
    policy = sagesched(boost)
    short, long = (policy.key(request(arrival), Score(amount, tokens), unit) for tokens in (length, length + more))
    assert short - long == pytest.approx(more * unit.token_s, rel=1e-6, abs=1e-4)


@LAW
@given(boosts, scores, scores, arrivals, arrivals, units, st.floats(-1e4, 1e4))
def test_the_order_does_not_depend_on_where_the_clock_starts(
    boost: float, a: Score, b: Score, at: float, bt: float, unit: Unit, shift: float
) -> None:
    """A key is computed once; two requests compare the same whenever that was, since no key holds a `now`."""
    policy = sagesched(boost)

    def ahead(by: float) -> float:
        return policy.key(request(at + by), a, unit) - policy.key(request(bt + by), b, unit)

    assert ahead(shift) == pytest.approx(ahead(0), abs=1e-6 * (1 + unit.mean_service_s / boost))


@LAW
@given(boosts, scores, arrivals, units, st.floats(0.1, 10), st.floats(0.1, 10))
def test_units_of_time_and_of_cost_do_not_matter(
    boost: float, score: Score, arrival: float, unit: Unit, time: float, cost: float
) -> None:
    policy = sagesched(boost)
    other = Unit(unit.mean_cost * cost, unit.mean_service_s * time, unit.token_s * time)
    scaled = policy.key(request(arrival * time), score._replace(amount=score.amount * cost), other)
    expected = time * policy.key(request(arrival), score, unit)
    assert scaled == pytest.approx(expected, rel=1e-6, abs=1e-6 * (1 + arrival + score.tokens))


@LAW
@given(boosts, scores, arrivals, units)
def test_nothing_is_held_back_beyond_its_arrival(boost: float, score: Score, arrival: float, unit: Unit) -> None:
    """So what comes later by more than the largest boost never passes it: no stream of small ones starves it."""
    policy = sagesched(boost)
    assert policy.key(request(arrival), score, unit) <= arrival
    boundless = policy.key(request(arrival), Score(1e6 * unit.mean_cost / boost, score.tokens), unit)
    assert boundless == arrival - score.tokens * unit.token_s


@LAW
@given(st.floats(-300, 2.4).map(lambda e: 10**e))
def test_boosted_is_exact_at_both_ends(x: float) -> None:
    with localcontext() as context:
        context.prec = 350
        exact = (1 - (-Decimal(x)).exp()).ln()
        assert boosted(x) == pytest.approx(float(exact), rel=1e-12, abs=0)


def test_boosted_has_no_hole_at_nothing() -> None:
    assert math.isfinite(boosted(0.0))
    assert boosted(0.0) < boosted(1e-9) < boosted(1.0) < boosted(30.0) < boosted(100.0) < boosted(700.0) <= 0


@LAW
@given(names, boosts, st.builds(Score, st.floats(0, 1e12), st.floats(0, 1e6)), arrivals, weights, units)
def test_every_key_is_a_number(
    name: str, boost: float, score: Score, arrival: float, weight: float, unit: Unit
) -> None:
    policy = policy_of(Scheduling(policy=name, boost=boost))
    assert math.isfinite(policy.key(request(arrival, weight), score, unit))


@LAW
@given(distributions, st.integers(0, 9000), st.integers(1, 4), st.integers(0, 4000))
def test_the_index_of_a_belief_over_fewer_stops_is_no_lower(
    of: LengthDistribution, generated: int, choices: int, prompt: int
) -> None:
    held = belief(of, choices=choices, prompt_tokens=prompt)
    held.generated_tokens = generated
    anywhere, boundaries, never = (
        held.index(stopping) for stopping in (Stopping.ANYWHERE, Stopping.BOUNDARIES, Stopping.NEVER)
    )
    assert 0 < anywhere <= boundaries * (1 + 1e-7)
    assert boundaries <= never * (1 + 1e-7)
    assert never == held.mean_cost()
    assert held.index() == boundaries, "the host's own stops are the default"


@LAW
@given(distributions, st.integers(0, 2999), st.integers(1, 4), st.integers(0, 4000))
def test_the_mean_cost_is_the_expected_one(of: LengthDistribution, generated: int, choices: int, prompt: int) -> None:
    assume(generated < of.tokens[-1])
    held = belief(of, choices=choices, prompt_tokens=prompt)
    held.generated_tokens = generated
    later = [(t, w) for t, w in zip(of.tokens.tolist(), of.weights.tolist(), strict=True) if t > generated]

    def cost(tokens: float) -> float:
        return prompt * tokens + tokens**2 / 2

    expected = sum(w * (cost(t) - cost(generated)) for t, w in later) / sum(w for _, w in later)
    assert held.mean_cost() == pytest.approx(choices * expected)
    assert held.mean_tokens() == pytest.approx(sum(w * (t - generated) for t, w in later) / sum(w for _, w in later))


@LAW
@given(distributions, st.integers(1, 5000), st.integers(1, 5000))
def test_what_outlives_its_atoms_costs_ever_more(of: LengthDistribution, age: int, more: int) -> None:
    """Its remaining work never reads as nothing (docs/method.md section 4), at any stopping."""
    held = belief(of)
    marks = []
    for generated in (of.tokens[-1] + age, of.tokens[-1] + age + more, 10 * (of.tokens[-1] + age + more)):
        held.generated_tokens = int(generated)
        marks.append([held.index(stopping) for stopping in Stopping])
        assert min(marks[-1]) >= generated + held.request.prompt_tokens, "one token more, at least"
    means = [mark[list(Stopping).index(Stopping.NEVER)] for mark in marks]
    assert means == sorted(means)
    assert min(marks[-1]) > max(marks[0]), "over the other stops it may fall towards a boundary, but not for long"


def test_each_policy_s_score_and_key() -> None:
    unit, of = Unit(50.0, 2.0), LengthDistribution.from_samples([10, 1000])
    held = belief(of, choices=2)
    amounts = {name: policy_of(Scheduling(policy=name)).score(held).amount for name in POLICIES}
    assert amounts == {
        "fcfs": 0.0,
        "sjf": pytest.approx(2 * 505),
        "mean": held.index(Stopping.NEVER),
        "gittins": held.index(Stopping.ANYWHERE),
        "sagesched": held.index(Stopping.BOUNDARIES),
    }
    assert policy_of(Scheduling()).score(held).tokens == held.mean_tokens() == pytest.approx(505)
    assert policy_of(Scheduling(policy="fcfs")).key(request(7.0, 3.0), Score(99.0, 5.0), unit) == 7.0
    for name in ("sjf", "mean", "gittins"):
        assert policy_of(Scheduling(policy=name)).key(request(7.0, 3.0), Score(99.0, 5.0), unit) == 33.0


def test_alpha_prices_the_prefill_before_the_first_token_only() -> None:
    priced = Belief(request(), LengthDistribution.point(10), Stopping.NEVER, Scheduling(alpha=5))
    assert priced.mean_cost() == 100 * 10 + 50 + 5 * 100
    priced.generated_tokens = 4
    assert priced.mean_cost() == 100 * 6 + 50 - 8
