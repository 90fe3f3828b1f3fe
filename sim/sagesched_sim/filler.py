"""Answers: filler words, one a token, the same for the same seed. ASCII letters, so they need no JSON escaping."""

import random
from typing import Final

_SYLLABLES: Final = ("ba", "ce", "di", "fo", "gu", "ha", "je", "ki", "lo", "mu", "na", "pe", "qui", "ro", "su", "ta")
RING_TOKENS: Final = 4096


class FillerText:
    """An endless text: a ring of words that each answer enters at a place of its own."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)  # noqa: S311 (words, not secrets)
        words = ["".join(rng.choices(_SYLLABLES, k=rng.randint(1, 3))) for _ in range(RING_TOKENS)]
        self._ring = b"".join(b" " + word.encode() for word in words)
        self._offsets = [0]
        for word in words:
            self._offsets.append(self._offsets[-1] + 1 + len(word))

    def tokens(self, entry: int, begin: int, end: int) -> bytes:
        """Tokens [begin, end) of the answer that enters at `entry`; all but the answer's first start with a space."""
        pieces = []
        at = begin
        while at < end:
            place = (entry + at) % RING_TOKENS
            count = min(end - at, RING_TOKENS - place)
            pieces.append(self._ring[self._offsets[place] : self._offsets[place + count]])
            at += count
        text = b"".join(pieces)
        return text[1:] if begin == 0 else text
