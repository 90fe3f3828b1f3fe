"""Embedding in time, and prompt tokens from characters."""

import threading

import numpy as np
import pytest

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
    assert estimate.tokens("m", 400) == pytest.approx(200, abs=2)
    assert estimate.tokens("other", 400) == 100


def test_the_models_known_are_bounded():
    estimate = TokenEstimate()
    for number in range(3 * MAX_MODELS):
        estimate.learn(f"model-{number}", 10, 10)
    known = sum(estimate.tokens(f"model-{number}", 100) == 100 for number in range(3 * MAX_MODELS))
    assert known == MAX_MODELS
