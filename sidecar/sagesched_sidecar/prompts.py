"""From a prompt to what the ranking wants of it: an embedding in time, and about how many tokens it has."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from sagesched.history import Vector

if TYPE_CHECKING:
    from sagesched.embed import Embedder

MAX_MODELS = 64
FIRST_TOKENS_PER_CHARACTER = 0.25
GUESSED_AT = (1, 4000)
GUESS_WEIGHT = 0.05
MEMORY = 0.995
"""Weight that a prompt keeps when the next one comes: the last 200 or so count."""


class PromptEmbedder:
    """Embeds within a deadline, or not at all: trouble gives None, which ranks neutrally, and a counted reason."""

    def __init__(self, embedder: "Embedder", deadline_s: float, troubled: Callable[[str], None]) -> None:
        self._embedder = embedder
        self.deadline_s = deadline_s
        self._troubled = troubled
        self._thread = ThreadPoolExecutor(1, "embedder") if embedder.blocking else None

    @property
    def inline(self) -> bool:
        """Whether an embedding is there without waiting."""
        return self._thread is None

    async def embed(self, prompt: str) -> Vector | None:
        """The unit vector, None on trouble. A fast embedder runs inline, a slow one in a thread of its own."""
        try:
            if self._thread is None:
                return self._embedder.embed(prompt)
            running = asyncio.get_running_loop().run_in_executor(self._thread, self._embedder.embed, prompt)
            return await asyncio.wait_for(running, self.deadline_s)
        except TimeoutError:
            self._troubled("embedder-timeout")
        except Exception:  # whatever an embedder raises, the request goes on
            self._troubled("embedder-error")
        return None

    def close(self) -> None:
        """End the thread; what it computes is not waited for."""
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)


class TokenEstimate:
    """Prompt tokens from the prompt's length in characters, learnt per model from the usage of its answers."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, _Line] = OrderedDict()

    def tokens(self, model: str, characters: int) -> int:
        """About how many tokens a prompt of so many characters has; at least 1."""
        line = self._lines.get(model)
        return max(1, round(FIRST_TOKENS_PER_CHARACTER * characters if line is None else line.at(characters)))

    def learn(self, model: str, characters: int, tokens: int) -> None:
        """A prompt of so many characters had so many tokens; the model used least recently is forgotten beyond 64."""
        if characters < 1 or tokens < 1:
            return
        self._lines.setdefault(model, _Line()).add(characters, tokens)
        self._lines.move_to_end(model)
        if len(self._lines) > MAX_MODELS:
            self._lines.popitem(last=False)


class _Line:
    """Tokens as a straight line over characters, by least squares in which older prompts count less.

    What a chat template adds to every prompt is the line's foot, and does not make long prompts longer. It begins as
    the first guess, lightly held.
    """

    def __init__(self) -> None:
        self._weight, self._x, self._y, self._xx, self._xy = 0.0, 0.0, 0.0, 0.0, 0.0
        for characters in GUESSED_AT:
            self.add(characters, FIRST_TOKENS_PER_CHARACTER * characters, GUESS_WEIGHT)

    def add(self, x: float, y: float, weight: float = 1.0) -> None:
        """One more prompt."""
        self._weight = self._weight * MEMORY + weight
        self._x = self._x * MEMORY + weight * x
        self._y = self._y * MEMORY + weight * y
        self._xx = self._xx * MEMORY + weight * x * x
        self._xy = self._xy * MEMORY + weight * x * y

    def at(self, x: float) -> float:
        """The line at so many characters, never falling."""
        mean_x, mean_y = self._x / self._weight, self._y / self._weight
        spread = self._xx / self._weight - mean_x * mean_x
        if spread <= 1e-9 * mean_x * mean_x:
            return mean_y * x / mean_x if mean_x else mean_y
        slope = max(0.0, (self._xy / self._weight - mean_x * mean_y) / spread)
        return mean_y + slope * (x - mean_x)
