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
LEARNING_RATE = 0.05


class PromptEmbedder:
    """Embeds within a deadline, or not at all: trouble gives None, which ranks neutrally, and a counted reason."""

    def __init__(self, embedder: "Embedder", deadline_s: float, troubled: Callable[[str], None]) -> None:
        self._embedder = embedder
        self._deadline_s = deadline_s
        self._troubled = troubled
        self._thread = ThreadPoolExecutor(1, "embedder") if embedder.blocking else None

    async def embed(self, prompt: str) -> Vector | None:
        """The unit vector, None on trouble. A fast embedder runs inline, a slow one in a thread of its own."""
        try:
            if self._thread is None:
                return self._embedder.embed(prompt)
            running = asyncio.get_running_loop().run_in_executor(self._thread, self._embedder.embed, prompt)
            return await asyncio.wait_for(running, self._deadline_s)
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
        self._per_character: OrderedDict[str, float] = OrderedDict()

    def tokens(self, model: str, characters: int) -> int:
        """About how many tokens a prompt of so many characters has; at least 1."""
        return max(1, round(characters * self._per_character.get(model, FIRST_TOKENS_PER_CHARACTER)))

    def learn(self, model: str, characters: int, tokens: int) -> None:
        """A prompt of so many characters had so many tokens; the model used least recently is forgotten beyond 64."""
        if characters < 1 or tokens < 1:
            return
        seen = tokens / characters
        known = self._per_character.get(model)
        self._per_character[model] = seen if known is None else known + LEARNING_RATE * (seen - known)
        self._per_character.move_to_end(model)
        if len(self._per_character) > MAX_MODELS:
            self._per_character.popitem(last=False)
