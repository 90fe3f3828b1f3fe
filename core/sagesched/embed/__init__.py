"""Prompt embeddings: a static token table by default, any sentence-transformers model by choice."""

from sagesched import settings
from sagesched.embed.protocol import Embedder, FloatArray
from sagesched.embed.static import StaticEmbedder

__all__ = ["Embedder", "FloatArray", "StaticEmbedder", "open_embedder"]


def open_embedder(embedding: settings.Embedding) -> Embedder:
    """The embedder that the settings name, loaded and ready.

    Raises SettingsError with the field and the fix when its package or model cannot be loaded.
    """
    if embedding.kind == "static":
        return StaticEmbedder.load()
    # Imported here alone, so that nothing of torch is paid for by those who do not choose it.
    from sagesched.embed.sentence import open_sentence_embedder

    return open_sentence_embedder(embedding.model or "")
