"""What a hint says is what the scheduler in the engine reads, and no bad hint costs a request."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagesched import hint
from sagesched.hint import MAX_ATOMS, BadHint, Hint
from sagesched.lengths import LengthDistribution
from sagesched.request import Request

LENGTHS = st.lists(st.integers(1, 100_000), min_size=1, max_size=200)
GOOD = Hint(lengths=(10.0, 20.5), weights=(0.25, 0.75), class_name="batch", priority=5, weight=2.0, arrival_s=1.7e9)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=2),
    lambda inner: st.lists(inner, max_size=40) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=50,
)


@given(LENGTHS, st.integers(-1000, 1000), st.floats(1e-6, 1000), st.floats(0, 4e9))
def test_it_comes_back_as_it_was_also_through_json(lengths, priority, weight, arrival_s):
    request = Request(id="a", class_name="some", priority=priority, weight=weight)
    told = Hint.of(request, LengthDistribution.from_samples(lengths), arrival_s)
    assert hint.decode(hint.encode(told)) == told
    assert hint.decode(json.loads(json.dumps(hint.encode(told)))) == told


@given(LENGTHS)
def test_at_most_32_atoms_keep_the_mean(lengths):
    whole = LengthDistribution.from_samples(lengths)
    told = Hint.of(Request(id="a"), whole, 0.0)
    assert len(told.lengths) <= MAX_ATOMS
    assert told.distribution().mean() == pytest.approx(whole.mean(), rel=1e-4, abs=0.06)
    assert told.distribution(max_tokens=1).mean() == pytest.approx(1.0)


@given(st.dictionaries(st.sampled_from(sorted(hint.encode(GOOD))), ANYTHING))
def test_whatever_a_member_holds_it_is_a_hint_or_a_reason(damage):
    arguments = hint.encode(GOOD) | damage
    read = hint.decode(arguments)
    assert isinstance(read, Hint | BadHint)
    if isinstance(read, BadHint):
        assert read.reason


@given(ANYTHING)
def test_arguments_of_any_kind_without_a_version_are_no_hint(arguments):
    if isinstance(arguments, dict):
        arguments.pop("sagesched_v", None)
    assert hint.decode(arguments) is None


@pytest.mark.parametrize(
    ("member", "value", "named"),
    [
        ("sagesched_v", 2, "version"),
        ("sagesched_v", True, "version"),
        ("sagesched_lengths", [], "lengths"),
        ("sagesched_lengths", [20, 10], "lengths"),
        ("sagesched_lengths", [0.5, 10], "lengths"),
        ("sagesched_lengths", [float("nan"), 10], "lengths"),
        ("sagesched_lengths", [1], "weights"),
        ("sagesched_lengths", list(range(1, 100)), "lengths"),
        ("sagesched_weights", [0.0, 1.0], "weights"),
        ("sagesched_weights", "ab", "weights"),
        ("sagesched_weights", [10**400, 1], "int too large"),
        ("sagesched_class", 7, "class"),
        ("sagesched_class", "x" * 64, "class"),
        ("sagesched_priority", 1001, "priority"),
        ("sagesched_weight", 0, "weight"),
        ("sagesched_arrival", float("inf"), "arrival"),
    ],
)
def test_a_bad_member_is_named(member, value, named):
    read = hint.decode(hint.encode(GOOD) | {member: value})
    assert isinstance(read, BadHint)
    assert named in read.reason


def test_its_values_are_flat_and_members_of_later_versions_are_left_alone():
    for value in hint.encode(GOOD).values():
        parts = value if isinstance(value, list) else [value]
        assert all(isinstance(part, str | int | float) for part in parts)
    assert hint.decode(hint.encode(GOOD) | {"sagesched_later": [1], "top_k": 3}) == GOOD
