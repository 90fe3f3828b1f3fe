"""The default embedder: a weighted sum of token vectors, made from all-MiniLM-L6-v2 by scripts/build_static_table.py.

Three things beside the tokens' meaning decide how well neighbours predict length (docs/adr/0001-static-embedder.md):
a word counts once however often it occurs, words near either end of the prompt count more (instructions stand there,
pasted material between), and the prompt's length is two coordinates of the vector.
"""

import math
import zlib
from importlib.resources import files
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from sagesched.embed.protocol import FloatArray
from sagesched.embed.wordpiece import WordPieces, words_of

HEAD_CHARACTERS = 256
TAIL_CHARACTERS = 384
"""Only this much of either end is read, so that a prompt of any size costs the same."""
HALF_WEIGHT_WORDS = 32
"""A word this far from the nearer end counts half."""
_WEIGHTS: FloatArray = np.divide(
    HALF_WEIGHT_WORDS, HALF_WEIGHT_WORDS + np.arange(HEAD_CHARACTERS + TAIL_CHARACTERS), dtype=np.float32
)
"""By distance to the nearer end; no text that is read has more words."""
LENGTH_NORM = 0.5
"""Norm of the length coordinates beside the meaning's 1: a fifth of every cosine is about length."""
LONGEST_CHARACTERS = 20_000
"""From here on all prompts count as equally long."""


class StaticEmbedder:
    """Token table and vocabulary in memory (about 12 MB); about 0.1 ms for a prompt of 200 tokens."""

    blocking = False

    def __init__(self, rows: NDArray[np.int8], scales: NDArray[np.float16], tokens: list[str]) -> None:
        """`rows` (n, dimensions - 2) times `scales` (n,) are the vectors of the tokens, then those of unknown words."""
        if rows.ndim != 2 or scales.shape != (len(rows),) or len(tokens) >= len(rows):
            raise ValueError(
                f"rows {rows.shape}, scales {scales.shape} and {len(tokens)} tokens do not make a table; "
                "make it anew with scripts/build_static_table.py"
            )
        self._rows = rows
        self._scales = scales.astype(np.float32)
        self._pieces = WordPieces(tokens, spare_rows=len(rows) - len(tokens))
        self.dimensions = rows.shape[1] + 2
        self.name = f"static-{self.dimensions}-{zlib.crc32(rows.data):08x}"

    @classmethod
    def load(cls) -> "StaticEmbedder":
        """The table that is shipped with the package."""
        data = files("sagesched.embed") / "data"
        tokens = (data / "tokens.txt").read_text(encoding="utf-8").split("\n")
        with (data / "rows.npy").open("rb") as rows, (data / "scales.npy").open("rb") as scales:
            return cls(_array(rows), _array(scales), tokens)

    def embed(self, text: str) -> FloatArray:
        """Unit vector of the text's first 256 and last 384 characters; equal for equal texts, whatever came before."""
        words = words_of(scanned(text))
        vector = np.zeros(self.dimensions, dtype=np.float32)
        if words:
            vector[:-2] = self._meaning(words)
        vector[-2:] = _length_coordinates(len(text) if words else 0)
        return _unit(vector)

    def _meaning(self, words: list[str]) -> FloatArray:
        """Unit vector (dimensions - 2,) of the words; zero if they cancel out."""
        rows, weights = weighted_rows(self._pieces, words)
        return _unit((weights * self._scales[rows]) @ self._rows.take(rows, axis=0).astype(np.float32))


def weighted_rows(pieces: WordPieces, words: list[str]) -> tuple[NDArray[np.intp], FloatArray]:
    """The table's rows for the distinct words, and a weight in (0, 1] for each by its word's place in the text."""
    nearest = _distances_to_nearer_end(words)
    rows, distances = pieces.whole_rows(nearest), list(nearest.values())
    if None in rows:
        for at, word in [(at, word) for at, (word, row) in enumerate(zip(nearest, rows, strict=True)) if row is None]:
            rows[at], *further = pieces.rows_of(word)
            rows += further
            distances += [distances[at]] * len(further)
    return np.array(rows, dtype=np.intp), _WEIGHTS[distances]


def _distances_to_nearer_end(words: list[str]) -> dict[str, int]:
    """Each distinct word's least distance to the start or the end, in words."""
    # From the middle outwards, left and right in turn: of equal keys a dict keeps the last value, here the least.
    half = (len(words) + 1) // 2
    outwards = [""] * len(words)
    outwards[0::2] = words[half - 1 :: -1]
    outwards[1::2] = words[half:]
    left = range(half - 1, -1, -1)
    distances = [0] * len(words)
    distances[0::2] = left
    distances[1::2] = left[len(words) % 2 :]
    return dict(zip(outwards, distances, strict=True))


def _unit(vector: FloatArray) -> FloatArray:
    norm = math.sqrt(float(vector @ vector))
    return np.divide(vector, norm, dtype=np.float32) if norm > 0 else vector


def _array(file: IO[bytes]) -> Any:
    return np.load(file, allow_pickle=False)


def scanned(text: str) -> str:
    """The part of the text that is read."""
    if len(text) <= HEAD_CHARACTERS + TAIL_CHARACTERS:
        return text
    return f"{text[:HEAD_CHARACTERS]}\n{text[-TAIL_CHARACTERS:]}"


def _length_coordinates(characters: int) -> tuple[float, float]:
    """A point on a half circle, by the logarithm of the length: close lengths lie close, the extremes opposite."""
    angle = math.pi * min(1.0, math.log1p(characters) / math.log1p(LONGEST_CHARACTERS))
    return LENGTH_NORM * math.cos(angle), LENGTH_NORM * math.sin(angle)
