"""Synthetic traffic from a seed, like public traffic: prompts made of topics, answers as long as ShareGPT's.

A topic is a distribution over the shared vocabulary (words.py): four of its fields in equal parts, under a background
of all words. Every field serves TOPICS * FIELDS_PER_TOPIC / len(FIELDS) = 8 topics, so that no word is proof of a
topic; only many words together are. Frames and prompt lengths are drawn without looking at the topic.

The answer length is `Q(F(rho * z + sqrt(1 - rho^2) * noise))` with z the topic's level, Q ShareGPT's quantile function
and F the distribution function of that sum over all topics, so that the lengths follow Q exactly, whatever rho.
"""

import re
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from .exchange import Exchange
from .quantiles import FloatArray, output_quantile, prompt_quantile
from .words import CONTEXT, FIELDS, REQUESTS, Field

TOPICS = 48
FIELDS_PER_TOPIC = 4
BACKGROUND = 0.1
"""The share of the content words that come from the whole vocabulary, whatever the topic."""
RHO = 0.79
"""The mixing parameter: the correlation of a topic's level with the latent length. The best prediction there can be,
the topic itself, has a Spearman of about 0.75 with the truth; a predictor, which sees words alone, reaches less."""
MAX_PROMPT_TOKENS = 4096

_ARTICLE = re.compile(r"\b([Aa])(?= [aeiou])")
_SLOT = re.compile(r"\{([nva])\}")
_WORDS_AND_MARKS = re.compile(r"\w+|[^\w\s]")
_SLOT_WORDS = {"n": 0, "v": 1, "a": 2}


class TopicTraffic:
    """Topics drawn once from a generator; `draw` then makes exchanges of them."""

    def __init__(self, rng: np.random.Generator, *, rho: float = RHO) -> None:
        if not 0 <= rho < 1:
            raise ValueError(f"rho: must be at least 0 and below 1, not {rho}")
        self._rho = rho
        self._fields: list[list[int]] = _assign_fields(rng).tolist()
        levels = np.array([NormalDist().inv_cdf((k + 0.5) / TOPICS) for k in range(TOPICS)])
        self._levels: FloatArray = rng.permutation(levels / levels.std())
        grid = np.linspace(-6.0, 6.0, 2401)
        self._grid, self._grid_cdf = grid, self._latent_cdf(grid)

    def _latent_cdf(self, latent: FloatArray) -> FloatArray:
        """F: the mixture of normals that rho * z + sqrt(1 - rho^2) * noise has over all topics."""
        spread = float(np.sqrt(1 - self._rho**2))
        standard = NormalDist()
        deviations = (latent[:, None] - self._rho * self._levels[None, :]) / spread
        cdf: FloatArray = np.vectorize(standard.cdf)(deviations).mean(axis=1)
        return cdf

    def draw(self, count: int, rng: np.random.Generator) -> tuple[Exchange, ...]:
        """`count` exchanges whose prompts differ from one another."""
        topics = rng.permutation(np.arange(count) % TOPICS)
        noise = rng.standard_normal(count)
        latent = self._rho * self._levels[topics] + np.sqrt(1 - self._rho**2) * noise
        lengths = np.rint(output_quantile(np.interp(latent, self._grid, self._grid_cdf))).astype(np.int64)
        targets = prompt_quantile(rng.random(count))
        seen: set[str] = set()
        exchanges = []
        for topic, length, target in zip(topics.tolist(), lengths.tolist(), targets.tolist(), strict=True):
            prompt = self._prompt(topic, target, rng)
            while prompt in seen:
                prompt = self._prompt(topic, target, rng)
            seen.add(prompt)
            exchanges.append(Exchange(prompt, max(1, length), topic))
        return tuple(exchanges)

    def _prompt(self, topic: int, target_tokens: float, rng: np.random.Generator) -> str:
        """A request and as many sentences of context as bring it nearest to the target, counted in words and marks."""
        sentences = [self._sentence(REQUESTS, topic, rng)]
        tokens = count_words(sentences[0])
        while True:
            sentence = self._sentence(CONTEXT, topic, rng)
            more = count_words(sentence)
            if tokens + more / 2 > target_tokens or tokens + more > MAX_PROMPT_TOKENS:
                return " ".join(sentences)
            sentences.append(sentence)
            tokens += more

    def _sentence(self, frames: Sequence[str], topic: int, rng: np.random.Generator) -> str:
        frame = frames[int(rng.random() * len(frames))]
        draws = iter(rng.random((frame.count("{"), 3)).tolist())
        sentence = _SLOT.sub(lambda slot: self._word(slot[1], topic, *next(draws)), frame)
        return _ARTICLE.sub(r"\1n", sentence)

    def _word(self, kind: str, topic: int, background: float, which: float, within: float) -> str:
        """A word of that kind from the topic's fields, or from all of them; the last three are uniform in [0, 1)."""
        fields = range(len(FIELDS)) if background < BACKGROUND else self._fields[topic]
        words = _words(FIELDS[fields[int(which * len(fields))]], kind)
        return words[int(within * len(words))]


def count_words(text: str) -> int:
    """Words and punctuation marks: what a WordPiece tokenizer makes of these everyday words, nearly one for one."""
    return len(_WORDS_AND_MARKS.findall(text))


def _words(field: Field, kind: str) -> tuple[str, ...]:
    return field[_SLOT_WORDS[kind]]


def _assign_fields(rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Distinct fields for each topic, (TOPICS, FIELDS_PER_TOPIC); each column holds every field equally often."""
    once = np.tile(np.arange(len(FIELDS)), TOPICS // len(FIELDS))
    columns: list[npt.NDArray[np.int64]] = []
    while len(columns) < FIELDS_PER_TOPIC:
        column = rng.permutation(once)
        for index in range(TOPICS):
            while any(column[index] == other[index] for other in columns):
                swap = int(rng.integers(TOPICS))
                column[[index, swap]] = column[[swap, index]]
        if all((column != other).all() for other in columns):
            columns.append(column)
    return np.stack(columns, axis=1)
