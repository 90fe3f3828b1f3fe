"""The sentence-transformers embedder, with a stand-in for the package at its import."""

import builtins
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from sagesched.embed import Embedder, open_embedder
from sagesched.settings import Embedding, SettingsError

CHOSEN = Embedding(kind="sentence-transformers", model="some/model")


class FakeSentenceTransformer:
    """Four dimensions, not of unit length; refuses what real tokenizers refuse."""

    def __init__(self, model: str) -> None:
        if model == "no/such":
            raise OSError("no/such is not a model")
        self.seen: list[str] = []

    def encode(self, text: str, **options: Any) -> Any:
        text.encode("utf-8")
        self.seen.append(text)
        if text == "nothing":
            return np.zeros(4, np.float32)
        if text == "broken":
            return np.full(4, np.nan, np.float32)
        return np.array([len(text), text.count("a"), text.count("b"), 2], np.float32)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("sentence_transformers")
    module.SentenceTransformer = FakeSentenceTransformer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "sentence_transformers", module)


@pytest.mark.usefixtures("installed")
def test_it_is_a_blocking_embedder() -> None:
    opened: Embedder = open_embedder(CHOSEN)
    assert (opened.name, opened.dimensions, opened.blocking) == ("sentence-transformers:some/model", 4, True)


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("text", ["", "  \n", "nothing", "broken", "a", "b" * 1_000_000, "\ud800 x", "\x00", "😀"])
def test_any_text_gives_a_finite_unit_vector(text: str) -> None:
    vector = open_embedder(CHOSEN).embed(text)
    assert vector.dtype == np.float32
    assert vector.shape == (4,)
    assert np.linalg.norm(vector) == pytest.approx(1, abs=1e-5)


@pytest.mark.usefixtures("installed")
def test_blank_texts_share_one_vector() -> None:
    opened = open_embedder(CHOSEN)
    assert np.array_equal(opened.embed(""), opened.embed(" \n\t"))


@pytest.mark.usefixtures("installed")
def test_a_huge_prompt_is_cut_before_the_model_sees_it() -> None:
    opened = open_embedder(CHOSEN)
    assert np.array_equal(opened.embed("a" * 1_000_000), opened.embed("a" * 8000))


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    real_import = builtins.__import__

    def refuse(name: str, *rest: Any, **more: Any) -> Any:
        if name == "sentence_transformers":
            raise ImportError(name)
        return real_import(name, *rest, **more)

    monkeypatch.delitem(sys.modules, "sentence_transformers", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(SettingsError, match=r"embedding\.kind.*sagesched\[embeddings\]"):
        open_embedder(CHOSEN)


@pytest.mark.usefixtures("installed")
def test_a_model_that_cannot_be_loaded_names_the_field() -> None:
    with pytest.raises(SettingsError, match=r"embedding\.model: 'no/such'"):
        open_embedder(Embedding(kind="sentence-transformers", model="no/such"))
