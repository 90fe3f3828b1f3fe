"""Laws of the length distribution: Kaplan-Meier against the textbook, conditioning against brute force, the tail."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from sagesched.lengths import LengthDistribution

LAW = settings(max_examples=60, deadline=None)
samples = st.lists(st.tuples(st.integers(1, 400), st.booleans(), st.floats(0.01, 10)), min_size=1, max_size=25)
lengths = st.lists(st.integers(1, 5000), min_size=1, max_size=30)
ages = st.integers(0, 12_000)


@st.composite
def distributions(draw: st.DrawFn) -> LengthDistribution:
    tokens, censored, weights = zip(*draw(samples), strict=True)
    return LengthDistribution.from_samples(tokens, censored, weights)


def assert_sound(one: LengthDistribution) -> None:
    assert one.tokens.size == one.weights.size >= 1
    assert (np.diff(one.tokens) > 0).all()
    assert (one.tokens > 0).all()
    assert (one.weights > 0).all()
    assert one.weights.sum() == pytest.approx(1, abs=1e-9)


def textbook(sampled: list[tuple[int, bool, float]]) -> tuple[dict[int, float], float]:
    """Kaplan-Meier as in the book: at each time of an event, the share of those still at risk that had one."""
    survival, atoms = 1.0, {}
    for time in sorted({t for t, cut, _ in sampled if not cut}):
        at_risk = sum(w for t, _, w in sampled if t >= time)
        events = sum(w for t, cut, w in sampled if t == time and not cut)
        atoms[time] = survival * events / at_risk
        survival *= 1 - events / at_risk
    return atoms, survival


@LAW
@given(samples)
def test_kaplan_meier_is_the_textbook_s(sampled: list[tuple[int, bool, float]]) -> None:
    tokens, censored, weights = zip(*sampled, strict=True)
    estimate = LengthDistribution.from_samples(tokens, censored, weights)
    atoms, beyond = textbook(sampled)
    assert_sound(estimate)
    for time, mass in atoms.items():
        jump = estimate.cdf(time) - estimate.cdf(time - 1)
        assert jump == pytest.approx(mass, abs=1e-9), time
    assert 1 - estimate.cdf(max(tokens)) == pytest.approx(beyond, abs=1e-9)


@LAW
@given(lengths)
def test_without_censoring_it_is_the_empirical_distribution(tokens: list[int]) -> None:
    for censored in (None, [False] * len(tokens)):
        estimate = LengthDistribution.from_samples(tokens, censored)
        assert estimate.tokens.tolist() == sorted(set(tokens))
        assert estimate.weights == pytest.approx([tokens.count(t) / len(tokens) for t in sorted(set(tokens))])
        assert estimate.mean() == pytest.approx(sum(tokens) / len(tokens))


@LAW
@given(lengths)
def test_all_censored_leaves_nothing_but_a_tail_beyond_the_largest(tokens: list[int]) -> None:
    estimate = LengthDistribution.from_samples(tokens, [True] * len(tokens))
    assert_sound(estimate)
    assert estimate.tokens[0] > max(tokens)


@LAW
@given(samples, st.integers(0, 24))
def test_censoring_one_more_sample_lowers_no_survival(sampled: list[tuple[int, bool, float]], which: int) -> None:
    which %= len(sampled)
    tokens, censored, weights = map(list, zip(*sampled, strict=True))
    before = LengthDistribution.from_samples(tokens, censored, weights)
    censored[which] = True
    after = LengthDistribution.from_samples(tokens, censored, weights)
    for t in {*tokens, 0, 10_000}:
        assert after.cdf(t) <= before.cdf(t) + 1e-9


def test_a_sample_of_no_weight_counts_for_nothing() -> None:
    assert LengthDistribution.from_samples([5, 9000], None, [1.0, 0.0]).tokens.tolist() == [5]
    assert LengthDistribution.from_samples([5, 9000], [False, True], [1.0, 0.0]).tokens.tolist() == [5]


def test_a_length_of_nothing_counts_as_one_token() -> None:
    assert LengthDistribution.from_samples([0, 0, -3]).tokens.tolist() == [1]
    assert LengthDistribution.point(0).tokens.tolist() == [1]


@pytest.mark.parametrize(("tokens", "weights"), [([], None), ([], []), ([3, 4], [0.0, 0.0])])
def test_no_sample_is_refused_by_name(tokens: list[float], weights: list[float] | None) -> None:
    with pytest.raises(ValueError, match="weights"):
        LengthDistribution.from_samples(tokens, None, weights)


@pytest.mark.parametrize(("censored", "weights"), [([True], None), (None, [1.0]), ([True] * 3, [1.0, 1.0])])
def test_columns_of_unlike_length_are_refused(censored: list[bool] | None, weights: list[float] | None) -> None:
    with pytest.raises(ValueError, match="one of each"):
        LengthDistribution.from_samples([3, 4], censored, weights)


@LAW
@given(st.lists(st.tuples(st.just(0.0) | st.floats(1e-6, 5), distributions()), min_size=1, max_size=5))
def test_a_mixture_s_mean_and_cdf_are_the_weighted_ones(parts: list[tuple[float, LengthDistribution]]) -> None:
    total = sum(w for w, _ in parts)
    assume(total > 0.01)
    mixed = LengthDistribution.mix(iter(parts))
    assert_sound(mixed)
    assert mixed.mean() == pytest.approx(sum(w * d.mean() for w, d in parts) / total)
    for t in (1, 50, 200, 399.5, 1000):
        assert mixed.cdf(t) == pytest.approx(sum(w * d.cdf(t) for w, d in parts) / total, abs=1e-9)


@pytest.mark.parametrize("parts", [[], [(0.0, LengthDistribution.point(4))]])
def test_a_mixture_of_nothing_is_refused(parts: list[tuple[float, LengthDistribution]]) -> None:
    with pytest.raises(ValueError, match="mix"):
        LengthDistribution.mix(parts)


@LAW
@given(distributions(), st.integers(1, 900))
def test_truncation_caps_the_largest_and_never_raises_the_mean(one: LengthDistribution, cap: int) -> None:
    cut = one.truncate(cap)
    assert_sound(cut)
    assert cut.tokens[-1] <= cap
    assert cut.mean() <= one.mean() + 1e-9
    assert cut.cdf(cap - 1) == pytest.approx(one.cdf(cap - 1))
    assert cut.cdf(cap) == pytest.approx(1)
    assert one.truncate(None) is one


@LAW
@given(distributions(), ages)
def test_what_remains_is_the_conditional_law(one: LengthDistribution, age: int) -> None:
    left = one.remaining(age)
    assert_sound(left)
    assert one.mean_remaining(age) == pytest.approx(left.mean(), rel=1e-6)
    later = [(t - age, w) for t, w in zip(one.tokens, one.weights, strict=True) if t > age]
    if later:
        mass = sum(w for _, w in later)
        assert left.tokens.tolist() == pytest.approx([t for t, _ in later])
        assert left.weights.tolist() == pytest.approx([w / mass for _, w in later])


@LAW
@given(distributions(), ages)
def test_the_spread_is_that_of_what_remains(one: LengthDistribution, age: int) -> None:
    left = one.remaining(age)
    square = float(left.tokens**2 @ left.weights) - left.mean() ** 2
    assert one.spread_remaining(age) ** 2 == pytest.approx(square, rel=1e-6, abs=1e-6 * left.mean() ** 2)
    assert LengthDistribution.point(7).spread_remaining(3) == 0


@LAW
@given(distributions(), ages)
def test_what_remains_is_never_nothing(one: LengthDistribution, age: int) -> None:
    assert one.mean_remaining(age) > 0
    if age >= one.tokens[-1]:
        assert one.remaining(age).tokens[0] >= 1 - 1e-9, "at least a token is to come"


@LAW
@given(distributions(), ages, ages)
def test_beyond_the_last_atom_what_remains_grows_with_the_age(one: LengthDistribution, age: int, more: int) -> None:
    age += int(one.tokens[-1]) + 1
    younger, older = one.mean_remaining(age), one.mean_remaining(age + more)
    assert older >= younger - 1e-6
    assert older >= 0.3 * (age + more), "in proportion to the age, so that it never fades beside it"


@LAW
@given(distributions(), st.integers(1, 1500), ages)
def test_a_cap_bounds_what_remains_beyond_the_last_atom_too(one: LengthDistribution, cap: int, age: int) -> None:
    """Whoever generated 505 of at most 512 tokens has seven to come, however short all others were."""
    capped = one.truncate(cap)
    left = capped.remaining(age)
    assert_sound(left)
    assert left.tokens[-1] <= max(1, cap - age)
    assert capped.mean_remaining(age) == pytest.approx(left.mean(), rel=1e-6)
    assert capped.truncate(cap + 1).remaining(age).tokens.tolist() == left.tokens.tolist(), "the smaller cap holds"


@LAW
@given(distributions(), st.integers(1, 12))
def test_compression_keeps_the_mean_in_few_atoms(one: LengthDistribution, atoms: int) -> None:
    small = one.compress(atoms)
    assert_sound(small)
    assert small.tokens.size <= atoms
    assert small.mean() == pytest.approx(one.mean())
    assert one.tokens[0] - 1e-6 <= small.tokens[0]
    assert small.tokens[-1] <= one.tokens[-1] + 1e-6


@LAW
@given(distributions(), st.floats(0, 1), st.floats(0, 2000))
def test_quantile_and_cdf_are_a_galois_connection(one: LengthDistribution, q: float, tokens: float) -> None:
    reached = one.cdf(tokens)
    assume(abs(reached - q) > 1e-9)
    assume(q > 0)
    assert (one.quantile(q) <= tokens) == (q <= reached)


@LAW
@given(distributions(), st.floats(0, 1), st.floats(0, 1))
def test_quantiles_ascend_between_the_first_atom_and_the_last(one: LengthDistribution, p: float, q: float) -> None:
    low, high = sorted((p, q))
    assert one.tokens[0] == one.quantile(0) <= one.quantile(low) <= one.quantile(high) <= one.quantile(1)
    assert one.quantile(1) == one.tokens[-1]


@settings(max_examples=50)
@given(distributions(), st.lists(st.tuples(st.none() | st.integers(1, 900), st.integers(1, 6)), min_size=2, max_size=6))
def test_what_was_asked_before_changes_no_answer(one: LengthDistribution, asked: list[tuple[int | None, int]]) -> None:
    """The last answers are kept; of a distribution that was never asked they are the same."""
    for cap, atoms in asked:
        fresh = LengthDistribution(one.tokens, one.weights, one.cap_tokens)
        for kept, made in ((one.truncate(cap), fresh.truncate(cap)), (one.compress(atoms), fresh.compress(atoms))):
            assert kept.tokens.tolist() == made.tokens.tolist()
            assert kept.weights.tolist() == made.weights.tolist()
            assert kept.cap_tokens == made.cap_tokens
            assert (kept.moments, kept.half_difference) == (made.moments, made.half_difference)
