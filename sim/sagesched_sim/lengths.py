"""True output lengths, which only the engine may know: scripted in the body, looked up in a file, or drawn by topic."""

import hashlib
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

_WORD: Final = re.compile(r"[^\W\d_]{4,}")
_MAX_WORDS: Final = 400
"""Words of a prompt that take part in its topic; the rest of a long one changes its mean little."""


class _Line(msgspec.Struct, frozen=True):
    key: str
    output_tokens: int


def prompt_key(text: str) -> str:
    """The key of a prompt in a lengths file: SHA-256 (hexadecimal) of its text in UTF-8."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def read_lengths(path: Path) -> dict[str, int]:
    """Reads `{"key": prompt_key, "output_tokens": N}` lines. Raises ValueError naming the line."""
    decoder = msgspec.json.Decoder(_Line)
    lengths: dict[str, int] = {}
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                entry = decoder.decode(line)
            except msgspec.DecodeError as error:
                raise ValueError(f"{path}:{number}: {error}; each line is {{key, output_tokens}}") from error
            if entry.output_tokens < 1:
                raise ValueError(f"{path}:{number}: output_tokens is {entry.output_tokens}; it must be at least 1")
            lengths[entry.key] = entry.output_tokens
    return lengths


def _normal(text: str, seed: int) -> float:
    """A standard normal number that depends on nothing but `text` and `seed` (Box-Muller on a hash)."""
    digest = hashlib.blake2b(
        text.encode("utf-8", "surrogatepass"), digest_size=16, salt=seed.to_bytes(16, "big")
    ).digest()
    first = (int.from_bytes(digest[:8], "big") + 1) / 2**64
    second = int.from_bytes(digest[8:], "big") / 2**64
    return math.sqrt(-2 * math.log(first)) * math.cos(2 * math.pi * second)


class TopicLengths:
    """Lognormal lengths whose logarithm is part topic, part chance: prompts that share words have similar lengths."""

    def __init__(
        self, seed: int, *, median_tokens: float = 200.0, sigma: float = 1.0, topic_share: float = 0.7
    ) -> None:
        self._seed = seed % 2**64
        self._median_tokens = median_tokens
        self._sigma = sigma
        self._topic_share = topic_share

    def draw(self, text: str, choice: int = 0) -> int:
        """The length of the answer number `choice` to `text`, at least 1; the same for the same seed."""
        words = list(dict.fromkeys(_WORD.findall(text.lower())))[:_MAX_WORDS]
        topic = sum(_normal(word, self._seed) for word in words) / math.sqrt(max(1, len(words)))
        chance = _normal(f"{choice}\0{text}", self._seed)
        z = self._topic_share * topic + math.sqrt(1 - self._topic_share**2) * chance
        return max(1, round(self._median_tokens * math.exp(self._sigma * z)))


class TrueLengths:
    """Where a request's true length comes from, by order of preference: its own script, the file, its topic."""

    def __init__(self, by_key: Mapping[str, int], topics: TopicLengths) -> None:
        self._by_key = by_key
        self._topics = topics

    def of(self, text: str, choice: int, scripted: int | None) -> int:
        """True length in tokens of the answer number `choice` to the prompt `text`."""
        if scripted is not None:
            return scripted
        if self._by_key and (found := self._by_key.get(prompt_key(text))) is not None:
            return found
        return self._topics.draw(text, choice)
