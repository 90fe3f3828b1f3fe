"""Laws of the index: brute force over every stop, and what follows from the definition."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagesched.gittins import IndexTable, Stopping

LAW = settings(max_examples=80, deadline=None)
Atoms = list[tuple[float, float]]


@st.composite
def atoms(draw: st.DrawFn, least: int = 1) -> Atoms:
    """Ascending costs, some of them close, with weights over twelve orders of magnitude."""
    steps = draw(st.lists(st.one_of(st.integers(1, 20), st.integers(1, 5000)), min_size=least, max_size=20))
    weights = [10**w for w in draw(st.lists(st.floats(-12, 0), min_size=len(steps), max_size=len(steps)))]
    return list(zip(np.cumsum(steps).astype(float).tolist(), (np.array(weights) / sum(weights)).tolist(), strict=True))


def table(of: Atoms, stopping: Stopping, boundaries: list[float] | None = None) -> IndexTable:
    costs, weights = zip(*of, strict=True)
    return IndexTable(np.array(costs), np.array(weights), stopping, boundaries or [])


def slope(of: Atoms, attained: float, stop: float) -> float:
    """E[min(X, stop) - a | X > a] / P(X <= stop | X > a), from the definition."""
    later = [(x, w) for x, w in of if x > attained]
    done = sum(w for x, w in later if x <= stop)
    return sum(w * (min(x, stop) - attained) for x, w in later) / done if done else math.inf


def brute_force(of: Atoms, attained: float, stops: list[float]) -> float:
    return min(slope(of, attained, stop) for stop in [*stops, of[-1][0]] if stop > attained)


def ages_of(of: Atoms, boundaries: list[float], spread: list[float]) -> list[float]:
    """Ages at 0, at every atom and boundary, just beside them, and between."""
    last = of[-1][0]
    at = [0.0, *(x for x, _ in of), *boundaries]
    ages = {*at, *(a - 0.5 for a in at), *(a + 0.5 for a in at), *(u * last for u in spread)}
    return sorted(a for a in ages if 0 <= a < last)


several = st.lists(st.integers(1, 60_000).map(float), max_size=8).map(sorted)
spread = st.lists(st.floats(0, 0.999), max_size=5)


@LAW
@given(atoms(), several, spread)
def test_equals_brute_force_at_every_age(of: Atoms, boundaries: list[float], between: list[float]) -> None:
    tables = {
        Stopping.NEVER: (table(of, Stopping.NEVER), []),
        Stopping.BOUNDARIES: (table(of, Stopping.BOUNDARIES, boundaries), boundaries),
        Stopping.ANYWHERE: (table(of, Stopping.ANYWHERE), [x for x, _ in of]),
    }
    for age in ages_of(of, boundaries, between):
        for stopping, (made, stops) in tables.items():
            assert made.index(age) == pytest.approx(brute_force(of, age, stops), rel=1e-6), (stopping, age)


@LAW
@given(atoms(), st.floats(0, 0.999), st.floats(0, 1.2))
def test_no_stop_at_all_has_a_smaller_slope_than_anywhere(of: Atoms, age: float, stop: float) -> None:
    """The infimum over every moment is reached at an atom: between atoms the cost rises and nothing more is done."""
    attained, stop = age * of[-1][0], stop * of[-1][0]
    if stop > attained:
        assert table(of, Stopping.ANYWHERE).index(attained) <= slope(of, attained, stop) * (1 + 1e-7)


@LAW
@given(atoms(), several, several, spread)
def test_fewer_stops_never_lower_it(of: Atoms, some: list[float], others: list[float], between: list[float]) -> None:
    """ANYWHERE <= BOUNDARIES <= NEVER, more boundaries never raise it: the infimum is over a larger set."""
    more = sorted({*some, *others})
    made = [
        table(of, Stopping.ANYWHERE),
        table(of, Stopping.BOUNDARIES, more),
        table(of, Stopping.BOUNDARIES, some),
        table(of, Stopping.NEVER),
    ]
    for age in ages_of(of, more, between):
        indices = [one.index(age) for one in made]
        for lower, fewer in pairwise(indices):
            assert lower <= fewer * (1 + 1e-7)


@LAW
@given(atoms(), spread)
def test_never_is_the_mean_that_remains_and_bounds_the_others(of: Atoms, between: list[float]) -> None:
    for age in ages_of(of, [], between):
        later = [(x - age, w) for x, w in of if x > age]
        mean = sum(x * w for x, w in later) / sum(w for _, w in later)
        assert table(of, Stopping.NEVER).index(age) == pytest.approx(mean, rel=1e-6)
        assert 0 < table(of, Stopping.ANYWHERE).index(age) <= mean * (1 + 1e-6)
        nearest = min(x for x, _ in later)
        assert table(of, Stopping.ANYWHERE).index(age) >= nearest * (1 - 1e-6), "no stop is nearer than the next atom"


@LAW
@given(st.floats(1, 1e9), st.floats(0, 0.99))
def test_a_point_mass_has_the_cost_that_remains(cost: float, age: float) -> None:
    for stopping in Stopping:
        made = table([(cost, 1.0)], stopping, [cost / 3, cost / 2])
        assert made.index(age * cost) == pytest.approx(cost - age * cost, rel=1e-6)


@LAW
@given(atoms(), several, st.floats(1e-3, 1e3), st.floats(0, 0.999))
def test_scaling_every_cost_scales_the_index(of: Atoms, boundaries: list[float], by: float, age: float) -> None:
    attained = age * of[-1][0]
    for stopping in Stopping:
        plain = table(of, stopping, boundaries).index(attained)
        scaled = table([(x * by, w) for x, w in of], stopping, [b * by for b in boundaries]).index(attained * by)
        assert scaled == pytest.approx(by * plain, rel=1e-5)


def test_the_worked_example() -> None:
    """X in {1, 100}, evenly: G(0) = 2, G(1) = 99, and the mean is 50.5 (docs/method.md)."""
    made = table([(1.0, 0.5), (100.0, 0.5)], Stopping.ANYWHERE)
    assert made.index() == pytest.approx(2)
    assert made.index(1.0) == pytest.approx(99)
    assert made.index(50.0) == pytest.approx(50)
    assert table([(1.0, 0.5), (100.0, 0.5)], Stopping.NEVER).index() == pytest.approx(50.5)
    assert made.last == 100


def test_a_boundary_counts_what_ends_exactly_there() -> None:
    halves = [(10.0, 0.5), (1000.0, 0.5)]
    assert table(halves, Stopping.BOUNDARIES, [10.0]).index() == pytest.approx(20)
    assert table(halves, Stopping.BOUNDARIES, [9.0]).index() == pytest.approx(505), "nothing ends by 9"
    assert table(halves, Stopping.BOUNDARIES, [0.0, 1000.0, 5000.0]).index() == pytest.approx(505), "no stops inside"


def evenly_spaced(hazards: list[float], rest_after: float) -> Atoms:
    """One atom every 10, and the rest `rest_after` later: a finite law ends with a hazard of 1."""
    alive, made = 1.0, []
    for k, hazard in enumerate(hazards, start=1):
        made.append((10.0 * k, alive * hazard))
        alive *= 1 - hazard
    return [*made, (10.0 * len(hazards) + rest_after, alive)]


falling = st.lists(st.floats(0.02, 0.6), min_size=2, max_size=15).map(lambda h: sorted(h, reverse=True))


@LAW
@given(falling)
def test_where_the_hazard_falls_the_index_rises_with_age(hazards: list[float]) -> None:
    """As in a mixture of short and long. At an atom the best stop is the next one."""
    of = evenly_spaced(hazards, rest_after=1000.0)
    made = table(of, Stopping.ANYWHERE)
    indices = [made.index(10.0 * k) for k in range(len(hazards))]
    assert indices == pytest.approx([10 / hazard for hazard in hazards], rel=1e-6)
    assert all(later >= earlier * (1 - 1e-9) for earlier, later in pairwise(indices))


@LAW
@given(falling)
def test_where_the_hazard_rises_stopping_never_helps(hazards: list[float]) -> None:
    of = evenly_spaced(hazards[::-1], rest_after=10.0)
    for k in range(len(of)):
        index = table(of, Stopping.ANYWHERE).index(10.0 * k)
        assert index == pytest.approx(table(of, Stopping.NEVER).index(10.0 * k), rel=1e-6)


@LAW
@given(atoms(least=2), st.floats(0, 0.999))
def test_between_two_atoms_the_index_falls_as_work_is_done(of: Atoms, age: float) -> None:
    start = max((x for x, _ in of if x <= age * of[-1][0]), default=0.0)
    end = min(x for x, _ in of if x > start)
    made = table(of, Stopping.ANYWHERE)
    marks = [made.index(start + (end - start) * part) for part in (0, 0.3, 0.6, 0.9)]
    assert all(later < earlier * (1 + 1e-7) for earlier, later in pairwise(marks))


@LAW
@given(atoms(), st.floats(0, 0.999), st.integers(2, 4))
def test_an_atom_in_several_parts_is_one_atom(of: Atoms, age: float, parts: int) -> None:
    split = [(x, w / parts) for x, w in of for _ in range(parts)]
    for stopping in Stopping:
        whole = table(of, stopping, [7.0, 300.0]).index(age * of[-1][0])
        assert table(split, stopping, [7.0, 300.0]).index(age * of[-1][0]) == pytest.approx(whole, rel=1e-6)


def test_at_or_beyond_the_largest_cost_there_is_no_index() -> None:
    for stopping in Stopping:
        made = table([(3.0, 0.5), (8.0, 0.5)], stopping, [4.0])
        for attained in (8.0, 9.0):
            with pytest.raises(ValueError, match="attained"):
                made.index(attained)


class Counting(IndexTable):
    """Counts the comparisons of a query."""

    compared = 0

    def _better_next(self, here: int, done: float, used: float) -> bool:
        self.compared += 1
        return super()._better_next(here, done, used)


@pytest.mark.parametrize("stopping", [Stopping.ANYWHERE, Stopping.BOUNDARIES])
def test_a_query_among_ten_thousand_atoms_takes_few_steps_and_is_right(stopping: Stopping) -> None:
    """A hull of many vertices: a hazard that falls all the way, so that most points stay on it."""
    n, rng = 10_000, np.random.default_rng(5)
    costs = np.cumsum(rng.uniform(1, 3, n))
    weights = 1.0 / np.arange(3, n + 3) ** 1.5 * rng.uniform(0.5, 1.5, n)
    weights /= weights.sum()
    stops = costs if stopping is Stopping.ANYWHERE else costs[3::7]
    made = Counting(costs, weights, stopping, stops)
    worst = 0
    for age in [0.0, *rng.choice(costs[:-1], 40), *rng.uniform(0, costs[-2], 40)]:
        made.compared = 0
        found = made.index(float(age))
        worst = max(worst, made.compared)
        ahead, mass = costs[costs > age] - age, weights[costs > age]
        allowed = np.append(stops[stops > age], costs[-1]) - age
        count = np.searchsorted(ahead, allowed * (1 + 1e-12), side="right")
        done, beyond = np.append(0, np.cumsum(mass))[count], np.append(np.cumsum(mass[::-1])[::-1], 0)[count]
        used = np.append(0, np.cumsum(mass * ahead))[count] + allowed * beyond
        assert found == pytest.approx((used[done > 0] / done[done > 0]).min(), rel=1e-6)
    assert worst <= 2 * math.ceil(math.log2(n)) + 4
