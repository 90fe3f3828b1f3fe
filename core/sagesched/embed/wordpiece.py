"""Words of a text and their rows in the token table: BERT's uncased WordPiece, reduced to what a bag of words needs."""

import re
import unicodedata
import zlib
from collections.abc import Iterable, Sequence

MAX_WORD_CHARACTERS = 32
"""Longer words are cut, so that neither the search for pieces nor the cache grows with hostile input."""
MAX_CACHED_WORDS = 20_000

# The same rule for ASCII text alone, in half the time.
_ASCII_WORD = re.compile(r"[a-z0-9]+|[^\sa-z0-9]")
# Scripts without spaces between words (kana, Han, Hangul) are read by character, all else by word; any other visible
# character stands for itself.
_WORD = re.compile(r"[^\W_\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]+|\S")


def words_of(text: str) -> list[str]:
    """The lower-case words and symbols of the text, in order."""
    return (_ASCII_WORD if text.isascii() else _WORD).findall(text.lower())


class WordPieces:
    """Maps a word to rows of a table: first one row per token, then `spare_rows` that unknown words share by hash."""

    def __init__(self, tokens: Sequence[str], spare_rows: int) -> None:
        self._tokens = {token: row for row, token in enumerate(tokens)}
        self._spare_rows = spare_rows
        self._cache: dict[str, tuple[int, ...]] = {}

    def whole_rows(self, words: Iterable[str]) -> list[int | None]:
        """For each word its row where it is a token by itself, as most are; None where it is not."""
        return list(map(self._tokens.get, words))

    def rows_of(self, word: str) -> tuple[int, ...]:
        """The rows of the word's pieces, at least one. The cache never changes the answer."""
        word = word[:MAX_WORD_CHARACTERS]
        rows = self._cache.get(word)
        if rows is None:
            rows = self._pieces(word) or self._pieces(_without_accents(word)) or (self._spare_row(word),)
            if len(self._cache) >= MAX_CACHED_WORDS:
                self._cache.clear()
            self._cache[word] = rows
        return rows

    def _pieces(self, word: str) -> tuple[int, ...]:
        """The longest known pieces from left to right; empty when some part is unknown."""
        rows: list[int] = []
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                row = self._tokens.get(word[start:end] if start == 0 else f"##{word[start:end]}")
                if row is not None:
                    break
            else:
                return ()
            rows.append(row)
            start = end
        return tuple(rows)

    def _spare_row(self, word: str) -> int:
        return len(self._tokens) + zlib.crc32(word.encode("utf-8", "surrogatepass")) % self._spare_rows


def _without_accents(word: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", word) if not unicodedata.combining(c))
