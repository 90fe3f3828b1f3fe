"""A rank becomes an int64 that orders as the rank does, whatever the policy's unit."""

import math
import sys

from hypothesis import given
from hypothesis import strategies as st

from sagesched.engine_priority import class_priority, class_range, engine_priority
from sagesched.waiting import Rank

EXTREMES = [0.0, -0.0, 5e-324, -5e-324, sys.float_info.max, -sys.float_info.max, math.inf, -math.inf, 1e6, 1e-9]
KEYS = st.floats(allow_nan=False) | st.sampled_from(EXTREMES)
CLASSES = st.integers(-1000, 1000)


def rank(priority, key):
    return Rank(priority, key, 0.0, "r")


@given(CLASSES, KEYS, CLASSES, KEYS)
def test_it_is_monotone_in_class_and_key(one_class, one_key, other_class, other_key):
    one, other = engine_priority(rank(one_class, one_key)), engine_priority(rank(other_class, other_key))
    if (one_class, one_key) <= (other_class, other_key):
        assert one <= other
    if one_class < other_class:
        assert one < other


@given(CLASSES, st.floats())
def test_it_is_an_int64_inside_its_class_s_own_range(priority, key):
    first, last = class_range(priority)
    assert -(2**63) <= first <= engine_priority(rank(priority, key)) <= last < 2**63
    assert class_range(priority + 1)[0] == last + 1
    assert first < class_priority(priority) < last


@given(st.floats(1e-300, 1e300), st.booleans())
def test_keys_that_differ_by_a_part_in_2_to_the_37_get_different_ones(key, negative):
    sign = -1 if negative else 1
    smaller, larger = sorted((sign * key, sign * key * (1 + 2.0**-37)))
    assert engine_priority(rank(0, smaller)) < engine_priority(rank(0, larger))


def test_a_key_that_is_no_number_goes_last():
    assert engine_priority(rank(0, math.nan)) >= engine_priority(rank(0, math.inf))
