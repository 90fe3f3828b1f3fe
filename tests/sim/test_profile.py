"""Step times: the formula, its monotony, and names that are wrong."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagesched_sim.profile import PROFILES, profile_named

names = st.sampled_from(sorted(PROFILES))


def test_formula_by_hand() -> None:
    profile = profile_named("llama-3.1-8b-rtx4090")
    # N = 310 tokens, 100 of them above the knee; P = 45,000 pairs; K = 20,000 tokens of context.
    expected_ms = 16.84 + 0.0370 * 310 + 0.0526 * 100 + 4.34e-6 * 45_000 + 1.415e-4 * 20_000
    assert profile.step_s(310, 45_000, 20_000) == pytest.approx(expected_ms / 1000)


@given(names, st.integers(1, 5000), st.integers(0, 10**7), st.integers(0, 10**6), st.integers(1, 500))
def test_more_work_takes_longer(name: str, tokens: int, pairs: int, context: int, more: int) -> None:
    profile = PROFILES[name]
    base_s = profile.step_s(tokens, pairs, context)
    assert profile.step_s(tokens + more, pairs, context) > base_s
    assert profile.step_s(tokens, pairs + 1000 * more, context) > base_s
    assert profile.step_s(tokens, pairs, context + more) > base_s


@given(names, st.integers(1, 200), st.integers(1, 2000))
def test_a_batch_beats_its_parts(name: str, sequences: int, context: int) -> None:
    profile = PROFILES[name]
    together_s = profile.step_s(sequences + 1, 0, context * (sequences + 1))
    assert together_s < profile.step_s(sequences, 0, context * sequences) + profile.step_s(1, 0, context)


def test_no_work_no_time() -> None:
    assert all(profile.step_s(0, 0, 0) == 0 for profile in PROFILES.values())


def test_unknown_name_lists_the_known() -> None:
    with pytest.raises(ValueError, match=r"profile: 'gpt'.*llama-3.1-8b-a40"):
        profile_named("gpt")
