"""Laws of the history window: the last of one tenant, an exact search, walls between groups."""

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagesched.history import Group, HistoryWindow, Vector, length_class
from sagesched.request import Features

LAW = settings(max_examples=60, deadline=None)
DIMENSIONS = 8
groups = st.sampled_from([Group(model, "t") for model in "mnop"])
two_groups = st.sampled_from([Group("m"), Group("m"), Group("m"), Group("n")])
records = st.lists(st.tuples(groups, st.integers(0, 12), st.integers(1, 900)), max_size=40)
capacities = st.integers(1, 12)


class Kept(NamedTuple):
    """A record as the model remembers it."""

    row: int
    group: Group
    vector: Vector
    output_tokens: int


Records = list[tuple[Group, int, int]]
Maker = Callable[[int], Vector]


def filled(capacity: int, of: Records, vector: Maker) -> tuple[HistoryWindow, deque[Kept]]:
    window, model = HistoryWindow(capacity, DIMENSIONS), deque[Kept](maxlen=capacity)
    for group, which, tokens in of:
        row = window.append(group, vector(which), prompt_tokens=10, output_tokens=tokens)
        assert row is not None
        model.append(Kept(row, group, vector(which), tokens))
    return window, model


@LAW
@given(capacities, records)
def test_it_keeps_the_last_records_and_no_other(vector: Maker, capacity: int, of: Records) -> None:
    window, model = filled(capacity, of, vector)
    assert len(window) == len(model) == min(capacity, len(of))
    assert len({kept.row for kept in model}) == len(model), "no two records share a row"
    for group in {group for group, _, _ in of}:
        own = sorted(kept.row for kept in model if kept.group == group)
        assert window.rows(group).tolist() == own
        assert window.count(group) == len(own)
    for kept in model:
        assert window.output_tokens[kept.row] == kept.output_tokens


@LAW
@given(capacities, records)
def test_a_group_is_forgotten_with_its_last_record(vector: Maker, capacity: int, of: Records) -> None:
    window, model = filled(capacity, of, vector)
    assert set(window._groups) == {kept.group for kept in model}, "memory does not grow with tenants gone by"
    assert len(set(window._groups.values())) == len(window._groups), "no two groups share a number"


@LAW
@given(
    st.integers(20, 40),
    st.lists(st.tuples(two_groups, st.integers(0, 12), st.integers(1, 900)), min_size=30, max_size=60),
    two_groups,
    st.integers(0, 12),
    st.integers(1, 4),
    st.sampled_from([-1.0, -0.5, 0.0, 0.25, 0.5, 0.6, 0.75, 0.8, 1.0]),
)
def test_the_search_is_exact(
    vector: Maker,
    capacity: int,
    of: Records,
    group: Group,
    which: int,
    count: int,
    threshold: float,
) -> None:
    window, model = filled(capacity, of, vector)
    found = window.nearest(group, vector(which), count, threshold)
    own = {kept.row: kept for kept in model if kept.group == group}
    similar = {row: float(kept.vector @ vector(which)) for row, kept in own.items()}
    wanted = min(len(own), 2 * count, max(count, sum(s >= threshold for s in similar.values())))
    assert found.similarities.tolist() == sorted(similar.values(), reverse=True)[:wanted]
    rows = found.rows.tolist()
    assert len(set(rows)) == len(rows)
    assert [similar[row] for row in rows] == found.similarities.tolist(), "the group's own, and as similar as said"
    assert found.output_tokens.tolist() == [own[row].output_tokens for row in rows]


def test_search_equals_brute_force_in_a_large_window_of_several_groups() -> None:
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(3000, 32)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    window, own = HistoryWindow(2000, 32), []
    for k, one in enumerate(vectors):
        group = Group("mno"[rng.integers(3)])
        row = window.append(group, one, prompt_tokens=5, output_tokens=k)
        own.append((row, group))
    kept = [k for k in range(1000, 3000) if own[k][1] == Group("n")]
    mine, similar = np.array([own[k][0] for k in kept]), np.array([vectors[k] @ vectors[7] for k in kept])
    order = np.argsort(-similar)
    found = window.nearest(Group("n"), vectors[7], 25, 0.3)
    expected = max(25, min(100, int((similar >= 0.3).sum())))
    assert found.rows.tolist() == mine[order[:expected]].tolist()
    assert found.similarities == pytest.approx(similar[order[:expected]], abs=1e-6)


def test_a_number_used_again_mixes_no_groups(vector: Maker) -> None:
    window = HistoryWindow(2, DIMENSIONS)
    for k in range(40):
        window.append(Group(f"m{k}"), vector(1), prompt_tokens=1, output_tokens=k + 1)
        for gone in range(k - 1):
            assert window.count(Group(f"m{gone}")) == 0
            assert not window.rows(Group(f"m{gone}")).size
            assert not window.nearest(Group(f"m{gone}"), vector(1), 5, 0.0).rows.size
        assert window.nearest(Group(f"m{k}"), vector(1), 5, 0.0).output_tokens.tolist() == [k + 1]


@pytest.mark.parametrize("shape", [(7,), (9,), (8, 1), ()])
@pytest.mark.parametrize("known", [False, True])
def test_a_vector_of_another_shape_is_refused(shape: tuple[int, ...], known: bool, vector: Maker) -> None:
    window, wrong = HistoryWindow(4, DIMENSIONS), np.zeros(shape, dtype=np.float32)
    if known:
        window.append(Group(), vector(0), prompt_tokens=1, output_tokens=1)
    before = len(window)
    with pytest.raises(ValueError, match="embedding"):
        window.append(Group(), wrong, prompt_tokens=1, output_tokens=1)
    with pytest.raises(ValueError, match="embedding"):
        window.nearest(Group(), wrong, 1, 0.0)
    assert len(window) == before


def test_features_stand_beside_their_record(vector: Maker) -> None:
    window = HistoryWindow(2, DIMENSIONS)
    for number, tools, effort in ((None, False, ""), (250.0, True, "high"), (None, False, "low")):
        features = Features(asked_number=number, tools=tools, effort=effort)
        row = window.append(Group(), vector(0), prompt_tokens=9, output_tokens=3, censored=tools, features=features)
        assert window.asked_number[row] == (number or 0)
        assert bool(window.tools[row]) is tools is bool(window.censored[row])
        assert window.effort[row] == window.effort_number(effort)
        assert window.length_class[row] == length_class(9, number)
    assert window.effort_number("high") != window.effort_number("low") != window.effort_number("")


def test_any_number_of_efforts_is_bounded() -> None:
    window = HistoryWindow(1, DIMENSIONS)
    numbers = {window.effort_number(f"effort-{k}") for k in range(5000)}
    assert max(numbers) <= 100
    assert window.effort_number("") == 0


@LAW
@given(st.integers(0, 10**7), st.integers(0, 10**7), st.floats(1, 2e5), st.floats(1, 2e5))
def test_length_classes_ascend_and_what_is_asked_for_is_apart(few: int, many: int, less: float, more: float) -> None:
    few, many = sorted((few, many))
    less, more = sorted((less, more))
    assert length_class(few, None) <= length_class(many, None) < length_class(many, less) <= length_class(0, more)
    assert length_class(many, less) == length_class(few, less), "the input does not count where an amount is named"


@LAW
@given(capacities, records, st.integers(1, 12), records)
def test_another_size_is_a_window_that_always_had_it(
    vector: Maker, capacity: int, before: Records, size: int, after: Records
) -> None:
    """What the larger one has forgotten before is gone; that aside, nobody can tell."""
    window, _ = filled(capacity, before, vector)
    twin, _ = filled(size, before[-capacity:], vector)
    forgotten = min(capacity, len(before)) - min(capacity, size, len(before))
    assert window.resize(size) == forgotten
    for which in (window, twin):
        for group, seed, tokens in after:
            which.append(group, vector(seed), prompt_tokens=10, output_tokens=tokens)
    assert (window.capacity, len(window)) == (twin.capacity, len(twin))
    for group in {group for group, _, _ in (*before, *after)}:
        assert window.count(group) == twin.count(group)
        lengths = [sorted(w.output_tokens[w.rows(group)].tolist()) for w in (window, twin)]
        assert lengths[0] == lengths[1]
        near = [w.nearest(group, vector(0), 12, -1.0) for w in (window, twin)]
        assert near[0].similarities.tolist() == near[1].similarities.tolist()
        assert sorted(near[0].output_tokens.tolist()) == sorted(near[1].output_tokens.tolist())
    assert set(window._groups) == set(twin._groups)
