"""Laws of the static embedder: any text gives a unit vector, the same one every time, and near texts are near."""

import subprocess
import sys
from importlib.resources import files

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagesched.embed import Embedder, StaticEmbedder, open_embedder, static, wordpiece
from sagesched.settings import Embedding

ANY_TEXT = st.one_of(
    st.text(max_size=400),
    st.text(st.characters(categories=["Cs", "Cc", "So", "Lo", "Mn"]), max_size=100),
    st.lists(st.sampled_from(["Write", "essay", "naïve", "你好", "مرحبا", "😀", "\ud800", "\x00", "\n", "_"])).map(
        " ".join
    ),
)


@pytest.fixture(scope="module")
def embedder() -> StaticEmbedder:
    return StaticEmbedder.load()


@given(text=ANY_TEXT)
def test_any_text_gives_a_finite_unit_vector(embedder: StaticEmbedder, text: str) -> None:
    vector = embedder.embed(text)
    assert vector.shape == (embedder.dimensions,)
    assert vector.dtype == np.float32
    assert np.linalg.norm(vector.astype(np.float64)) == pytest.approx(1, abs=1e-5)


@given(texts=st.lists(ANY_TEXT, max_size=5), text=ANY_TEXT)
def test_a_vector_does_not_depend_on_what_was_embedded_before(
    embedder: StaticEmbedder, texts: list[str], text: str
) -> None:
    before = embedder.embed(text)
    embedder._pieces._cache.clear()
    for other in texts:
        embedder.embed(other)
    assert np.array_equal(embedder.embed(text), before)


@given(
    text=st.text(
        st.characters(categories=["Zs", "Cc"], include_characters=" \n\t", exclude_characters=None), max_size=50
    )
)
def test_blank_text_gives_one_fixed_vector(embedder: StaticEmbedder, text: str) -> None:
    expected_blank = not text.strip()
    assert np.array_equal(embedder.embed(text), embedder.embed("")) == expected_blank


def test_the_cache_is_bounded_and_full_caches_give_the_same_vectors(
    embedder: StaticEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wordpiece, "MAX_CACHED_WORDS", 10)
    embedder._pieces._cache.clear()
    text = " ".join(f"word{i}" for i in range(100)) + " " + "x" * 500
    first = embedder.embed(text)
    assert len(embedder._pieces._cache) <= 10
    assert max(map(len, embedder._pieces._cache)) <= wordpiece.MAX_WORD_CHARACTERS
    assert np.array_equal(embedder.embed(text), first)


@pytest.mark.parametrize("unit", ["x", "a b ", "字", "\ud800", "😀", "\x00", "é", " "])
def test_of_a_huge_prompt_only_the_ends_are_read(embedder: StaticEmbedder, unit: str) -> None:
    huge = unit * (1_000_000 // len(unit))
    assert len(static.scanned(huge)) <= static.HEAD_CHARACTERS + static.TAIL_CHARACTERS + 1
    head, tail = huge[: static.HEAD_CHARACTERS], huge[-static.TAIL_CHARACTERS :]
    other_middle = head + "z" * (len(huge) - len(head) - len(tail)) + tail
    assert np.array_equal(embedder.embed(huge), embedder.embed(other_middle))


@pytest.mark.parametrize(
    ("text", "near", "far"),
    [
        (
            "How do I bake sourdough bread?",
            "How can I bake sourdough bread at home?",
            "Fix this KeyError in Python code",
        ),
        ("Write an essay about climate change", "Compose an essay on global warming", "Translate 'cat' into French"),
        ("Summarize the following article:", "Please summarise this article", "Who won the 1998 world cup?"),
        ("请写一篇关于气候变化的文章", "写一篇气候变化的文章", "今天天气怎么样"),
        ("😀😀", "😀", "🚀"),
    ],
)
def test_near_texts_are_nearer_than_unrelated_ones(embedder: StaticEmbedder, text: str, near: str, far: str) -> None:
    vector = embedder.embed(text)
    assert float(vector @ embedder.embed(near)) > float(vector @ embedder.embed(far)) + 0.1


def test_one_number_hardly_moves_the_vector_which_is_why_features_exist(embedder: StaticEmbedder) -> None:
    short = embedder.embed("Write at least 2000 words about the history of the bicycle in Europe")
    long = embedder.embed("Write at least 8000 words about the history of the bicycle in Europe")
    assert float(short @ long) > 0.9


def test_length_tells_prompts_of_the_same_words_apart(embedder: StaticEmbedder) -> None:
    vectors = [embedder.embed("tell me a story " * n) for n in (1, 2, 50)]
    assert float(vectors[0] @ vectors[1]) > float(vectors[0] @ vectors[2])


def test_distances_are_to_the_nearer_end() -> None:
    words = ["a", "b", "c", "b", "d", "e", "f"]
    expected: dict[str, int] = {}
    for at, word in enumerate(words):
        expected[word] = min(expected.get(word, at), at, len(words) - 1 - at)
    assert static._distances_to_nearer_end(words) == expected


@given(words=st.lists(st.sampled_from("abcdefgh")))
def test_distances_equal_the_plain_definition(words: list[str]) -> None:
    expected: dict[str, int] = {}
    for at, word in enumerate(words):
        expected[word] = min(expected.get(word, at), at, len(words) - 1 - at)
    assert static._distances_to_nearer_end(words) == expected


@given(text=st.text(st.characters(codec="ascii")))
def test_the_fast_rule_for_ascii_finds_the_same_words(text: str) -> None:
    assert wordpiece.words_of(text) == wordpiece._WORD.findall(text.lower())


def test_the_package_data_is_small() -> None:
    data = files("sagesched.embed") / "data"
    assert sum(len(file.read_bytes()) for file in data.iterdir()) <= 8_000_000


def test_the_default_imports_neither_torch_nor_tokenizers() -> None:
    program = (
        "import sys; from sagesched.embed import open_embedder; from sagesched.settings import Embedding; "
        "open_embedder(Embedding()).embed('hello'); "
        "print([m for m in ('torch', 'tokenizers', 'transformers', 'sentence_transformers') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"


def test_it_is_an_embedder() -> None:
    opened: Embedder = open_embedder(Embedding())
    assert opened.name.startswith("static-128-")
    assert opened.dimensions == 128
    assert not opened.blocking


def test_a_table_that_does_not_fit_says_how_to_make_one() -> None:
    with pytest.raises(ValueError, match="build_static_table"):
        StaticEmbedder(np.zeros((3, 4), np.int8), np.ones(2, np.float16), ["a"])
