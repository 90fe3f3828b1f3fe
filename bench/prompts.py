"""Seeded prompts, all different, in topics that resemble one another as real traffic does."""

import random
from importlib.resources import files

TOKENS = 200
TOPICS = 1000
TOPIC_WORDS = 60
COMMON_WORDS = 300
COMMON = 0.5
"""Share of a prompt's words that are common English; the others are its topic's."""
ASKING = 0.25
"""Share of prompts that name an amount of output, which is one more thing to be read."""

_FIRST_WORD = 1000
"""The vocabulary begins with characters and reserved entries; from here on it is sorted by falling frequency."""


class Prompts:
    """Draws prompts. Every word is one token of all-MiniLM-L6-v2's vocabulary."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        text = (files("sagesched.embed") / "data" / "tokens.txt").read_text(encoding="utf-8")
        words = [word for word in text.split("\n")[_FIRST_WORD:] if word.isascii() and word.isalpha()]
        self._common, rare = words[:COMMON_WORDS], words[COMMON_WORDS:]
        self._by_rank = [1 / (rank + 2.7) for rank in range(COMMON_WORDS)]
        self._topics = [self._rng.sample(rare, TOPIC_WORDS) for _ in range(TOPICS)]

    def draw(self, tokens: int = TOKENS) -> tuple[int, str]:
        """A topic's number and a prompt of it, of exactly so many tokens."""
        rng, topic = self._rng, self._rng.randrange(TOPICS)
        common = round(tokens * COMMON)
        words = rng.choices(self._common, weights=self._by_rank, k=common)
        words += rng.choices(self._topics[topic], k=tokens - common)
        rng.shuffle(words)
        if rng.random() < ASKING:
            words[:5] = ["write", "about", str(rng.choice((50, 100, 200, 500, 1000))), "words", "on"]
        return topic, " ".join(words)

    def draw_of_any_length(self) -> tuple[int, str]:
        """The same with a lognormal length, as in public traffic: half of them below 100 tokens, a tenth above 470."""
        return self.draw(min(2000, max(8, round(self._rng.lognormvariate(4.6, 1.2)))))

    def output_tokens(self, topic: int) -> int:
        """An output length: lognormal about the topic's own median."""
        return max(1, round(self._rng.lognormvariate(4.5 + topic % 7 / 3, 0.8)))
