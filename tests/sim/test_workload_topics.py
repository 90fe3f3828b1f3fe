"""The synthetic traffic keeps its promises: lengths like public traffic, no telling word, one seed one traffic."""

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagesched_sim.workload.exchange import Exchange
from sagesched_sim.workload.quantiles import OUTPUT_TOKENS, output_quantile, prompt_quantile
from sagesched_sim.workload.topics import TOPICS, TopicTraffic, count_words

SHAREGPT_OUTPUT = {0.5: 264.0, 0.9: 601.8, 0.99: 948.0}


def _draw(seed: int, count: int) -> tuple[Exchange, ...]:
    rng = np.random.default_rng(seed)
    return TopicTraffic(rng).draw(count, rng)


@pytest.fixture(scope="module")
def exchanges() -> tuple[Exchange, ...]:
    return _draw(7, 6000)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_output_lengths_follow_sharegpt_for_every_seed(seed: int) -> None:
    lengths = [exchange.output_tokens for exchange in _draw(seed, 1500)]
    for level, tokens in SHAREGPT_OUTPUT.items():
        assert np.quantile(lengths, level) == pytest.approx(tokens, rel=0.1), level


def test_prompt_lengths_follow_sharegpt_and_are_bounded(exchanges: tuple[Exchange, ...]) -> None:
    tokens = [count_words(exchange.prompt) for exchange in exchanges]
    assert np.quantile(tokens, 0.5) == pytest.approx(34, rel=0.15)
    assert np.quantile(tokens, 0.9) == pytest.approx(718, rel=0.15)
    assert max(tokens) <= 4096


def test_no_word_tells_the_topic(exchanges: tuple[Exchange, ...]) -> None:
    """P(topic | the word stands in the prompt) stays low for every word, and several topics use each one."""
    topics_of: dict[str, Counter[int]] = defaultdict(Counter)
    for exchange in exchanges:
        for word in set(exchange.prompt.lower().replace(".", "").replace(",", "").replace("?", "").split()):
            topics_of[word][exchange.topic] += 1
    assert len(topics_of) > 400
    for word, topics in topics_of.items():
        present = topics.total()
        assert present >= 100, word
        assert max(topics.values()) / present <= 0.2, word
        assert len(topics) >= 8, word


def test_topics_differ_in_length_and_none_is_certain(exchanges: tuple[Exchange, ...]) -> None:
    by_topic: dict[int, list[int]] = defaultdict(list)
    for exchange in exchanges:
        by_topic[exchange.topic].append(exchange.output_tokens)
    assert len(by_topic) == TOPICS
    medians = [np.median(lengths) for lengths in by_topic.values()]
    assert max(medians) > 3 * min(medians)
    assert all(np.quantile(lengths, 0.9) > 1.5 * np.quantile(lengths, 0.1) for lengths in by_topic.values())


def test_prompts_are_distinct_requests(exchanges: tuple[Exchange, ...]) -> None:
    prompts = [exchange.prompt for exchange in exchanges]
    assert len(set(prompts)) == len(prompts)
    assert all(prompt[0].isupper() and prompt[-1] in ".?" and "{" not in prompt for prompt in prompts)


def test_a_seed_is_a_traffic() -> None:
    assert _draw(3, 50) == _draw(3, 50)
    assert _draw(3, 50) != _draw(4, 50)


def test_rho_outside_its_range_is_refused() -> None:
    with pytest.raises(ValueError, match="rho"):
        TopicTraffic(np.random.default_rng(0), rho=1.0)


@settings(max_examples=30)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=20))
def test_quantile_functions_ascend_within_their_bounds(levels: list[float]) -> None:
    ordered = np.sort(np.array(levels))
    for quantile in (output_quantile, prompt_quantile):
        assert (np.diff(quantile(ordered)) >= 0).all()
    assert output_quantile(ordered).min() >= OUTPUT_TOKENS[0] - 1e-9
    assert output_quantile(ordered).max() <= OUTPUT_TOKENS[-1] + 1e-6
