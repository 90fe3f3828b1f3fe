"""Embedding in time, and prompt tokens from characters."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagesched_sidecar.prompts import MAX_MODELS, PromptEmbedder, TokenEstimate


class SlowEmbedder:
    name, dimensions, blocking = "slow", 2, True

    def __init__(self):
        self.go = threading.Event()

    def embed(self, text):
        self.go.wait(10)
        return np.array([1.0, 0.0], dtype=np.float32)


async def test_a_slow_embedder_is_not_waited_for():
    reasons = []
    slow = SlowEmbedder()
    prompts = PromptEmbedder(slow, 0.005, reasons.append)
    assert await prompts.embed("x") is None
    assert reasons == ["embedder-timeout"]
    slow.go.set()
    patient = PromptEmbedder(slow, 10, reasons.append)
    assert (await patient.embed("x")).tolist() == [1.0, 0.0]
    assert reasons == ["embedder-timeout"]
    prompts.close()
    patient.close()


def test_tokens_follow_the_usage_per_model():
    estimate = TokenEstimate()
    assert estimate.tokens("m", 400) == 100
    assert estimate.tokens("m", 0) == 1
    for _ in range(200):
        estimate.learn("m", 1000, 500)
    assert estimate.tokens("m", 1000) == pytest.approx(500, abs=5)
    assert estimate.tokens("other", 400) == 100


def test_what_a_template_adds_to_each_prompt_makes_long_ones_no_longer():
    estimate = TokenEstimate()
    rng = np.random.default_rng(1)
    for characters in rng.lognormal(5, 1.5, 300).astype(int) + 1:
        estimate.learn("m", int(characters), 40 + int(characters) // 4)
    for characters in (20, 200, 20_000):
        assert estimate.tokens("m", characters) == pytest.approx(40 + characters / 4, rel=0.05)


@given(st.lists(st.tuples(st.integers(-5, 10**7), st.integers(-5, 10**7)), max_size=30), st.integers(0, 10**7))
def test_any_usage_gives_at_least_one_token_and_more_for_more(seen, characters):
    estimate = TokenEstimate()
    for of, tokens in seen:
        estimate.learn("m", of, tokens)
    assert 1 <= estimate.tokens("m", characters) <= estimate.tokens("m", characters + 1000)


def test_the_models_known_are_bounded():
    estimate = TokenEstimate()
    for number in range(3 * MAX_MODELS):
        for _ in range(5):
            estimate.learn(f"model-{number}", 100, 300)
    known = sum(estimate.tokens(f"model-{number}", 100) > 200 for number in range(3 * MAX_MODELS))
    assert known == MAX_MODELS
