"""Embeddings by a sentence-transformers model: slower; for prompts that are not English, for one."""

from typing import Any

import numpy as np

from sagesched.embed.protocol import FloatArray
from sagesched.settings import SettingsError

MAX_CHARACTERS = 8000
"""Only the first of a prompt are read; the model itself cuts at its own number of tokens, mostly fewer."""


class SentenceEmbedder:
    """Any sentence-transformers model. One call at a time, as its tokenizer is not safe in several threads."""

    blocking = True

    def __init__(self, model: Any, name: str) -> None:
        """`model` has sentence-transformers' `encode`; `name` is what it was loaded by."""
        self._model = model
        self.name = f"sentence-transformers:{name}"
        self.dimensions = int(np.asarray(self._encode("length of a vector")).shape[-1])

    def embed(self, text: str) -> FloatArray:
        """Unit vector of the text's first 8,000 characters; the first axis where there is no text or no direction."""
        cut = text[:MAX_CHARACTERS].strip()
        if cut:
            vector = np.asarray(self._encode(cut), dtype=np.float32).reshape(-1)
            norm = float(np.linalg.norm(vector.astype(np.float64)))
            if np.isfinite(norm) and norm > 0:
                return vector / np.float32(norm)
        axis = np.zeros(self.dimensions, dtype=np.float32)
        axis[0] = 1.0
        return axis

    def _encode(self, text: str) -> Any:
        # A lone surrogate is a str but not text: tokenizers refuse it.
        plain = text.encode("utf-8", "replace").decode("utf-8")
        return self._model.encode(plain, show_progress_bar=False, convert_to_numpy=True)


def open_sentence_embedder(model: str) -> SentenceEmbedder:
    """Loads the model by name or path. Raises SettingsError with the field and the fix."""
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise SettingsError(
            "embedding.kind: sentence-transformers is not installed; "
            "run `pip install 'sagesched[embeddings]'` or set embedding.kind to static"
        ) from error
    try:
        loaded = SentenceTransformer(model)
    except (OSError, ValueError) as error:
        raise SettingsError(f"embedding.model: {model!r} cannot be loaded as a name or a path: {error}") from error
    return SentenceEmbedder(loaded, model)
