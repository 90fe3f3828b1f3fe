"""Laws of the cost: increasing, invertible, nothing attained before the first token."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagesched.cost import Cost

LAW = settings(max_examples=60, deadline=None)
prompts = st.integers(0, 200_000)
outputs = st.integers(1, 200_000)
alphas = st.floats(0, 1000)


@LAW
@given(prompts, alphas, outputs, outputs)
def test_more_tokens_cost_more(prompt: int, alpha: float, one: int, other: int) -> None:
    cost = Cost.of(prompt, alpha=alpha)
    low, high = sorted((one, other))
    assert cost.total(float(high)) - cost.total(float(low)) >= (high - low) / 2
    assert Cost.of(prompt + 1, alpha=alpha).total(float(low)) > cost.total(float(low))


@LAW
@given(prompts, alphas, outputs)
def test_tokens_for_undoes_total(prompt: int, alpha: float, output: int) -> None:
    cost = Cost.of(prompt, alpha=alpha)
    assert cost.tokens_for(cost.total(float(output))) == pytest.approx(output, rel=1e-6)
    assert cost.tokens_for(cost.prefill) == cost.tokens_for(-1.0) == 0


@LAW
@given(st.integers(0, 500), st.integers(1, 300))
def test_without_alpha_it_is_the_memory_held_over_the_steps(prompt: int, output: int) -> None:
    held = sum(prompt + step for step in range(1, output + 1))
    assert Cost.of(prompt).total(float(output)) == pytest.approx(held - output / 2), "the paper's sum, half a step off"


@LAW
@given(prompts, alphas, outputs)
def test_nothing_is_attained_before_the_first_token(prompt: int, alpha: float, output: int) -> None:
    cost = Cost.of(prompt, alpha=alpha)
    assert cost.attained(0) == 0
    assert cost.attained(output) == cost.total(float(output)) >= cost.prefill


def test_alpha_prices_the_uncached_part_of_the_prompt_only() -> None:
    assert Cost.of(100, alpha=3).total(10.0) - Cost.of(100).total(10.0) == 300
    assert Cost.of(100, alpha=3, uncached_tokens=20).total(10.0) - Cost.of(100).total(10.0) == 60
    assert Cost.of(100, alpha=3, uncached_tokens=0) == Cost.of(100)


def test_an_array_costs_what_its_numbers_cost() -> None:
    cost, many = Cost.of(70, alpha=0.5), np.array([1.0, 17.0, 4000.0])
    assert cost.total(many).tolist() == [cost.total(float(one)) for one in many]


@given(st.integers(0, 10_000), st.floats(0, 10), st.lists(st.integers(1, 20_000), min_size=1, max_size=20))
def test_the_mean_cost_needs_two_moments_of_the_length(prompt: int, alpha: float, outputs: list[int]) -> None:
    cost, tokens = Cost.of(prompt, alpha=alpha), np.array(outputs, dtype=np.float64)
    moments = float(tokens.mean()), float((tokens * tokens).mean())
    assert cost.mean(moments) == pytest.approx(float(cost.total(tokens).mean()))
