"""What a prompt asks for: a table of phrases, and laws for every other text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagesched import features
from sagesched.amount_words import TOKENS_PER
from sagesched.features import MAX_ASKED_TOKENS, asked_tokens, features_of

WORD, ITEM = TOKENS_PER["word"], TOKENS_PER["item"]


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        ("write a guide in 5000 words about camping", 5000 * WORD),
        ("at least 2,000 words", 2000 * WORD),
        ("a 500-word essay", 500 * WORD),
        ("in 2000-2500 words what were", 2500 * WORD),
        ("a two-thousand-word report", 2000 * WORD),
        ("two thousand five hundred words", 2500 * WORD),
        ("fifteen hundred words", 1500 * WORD),
        ("about 2k words", 2000 * WORD),
        ("in 1.5k words", 1500 * WORD),
        ("Word count: 800", 800 * WORD),
        ("answer in one word", WORD),
        ("write 10 different templates", 10 * ITEM),
        ("Give me a list of five tips", 5 * ITEM),
        ("top 10 places to see", 10 * ITEM),
        ("Make 55 multiple-choice questions", 55 * ITEM),
        ("Come up with 4 anti-hero characters", 4 * ITEM),
        ("Write 5 ideas, 100 words each", 500 * WORD),
        ("3 paragraphs", 3 * TOKENS_PER["paragraph"]),
        ("5 long, detailed paragraphs", 5 * TOKENS_PER["paragraph"]),
        ("10-12 pages", 12 * TOKENS_PER["page"]),
        ("a one-page summary", TOKENS_PER["page"]),
        ("in two sentences", 2 * TOKENS_PER["sentence"]),
        ("3 to 4 sentences", 4 * TOKENS_PER["sentence"]),
        ("6000 characters of text", 6000 * TOKENS_PER["character"]),
        ("Schreibe 3.000 Wörter", 3000 * WORD),
        ("Schreibe einen Aufsatz mit fünf Absätzen und zwei Seiten", 2 * TOKENS_PER["page"]),
        ("escribe quinientas palabras", 500 * WORD),
        ("écris cinq paragraphes", 5 * TOKENS_PER["paragraph"]),
        ("请写一篇500字的文章", 500),
        ("写一篇2千字的文章", 2000),
        ("Write a 3000 word article on how to make $500 a week", 3000 * WORD),
    ],
)
def test_an_amount_that_is_asked_for(prompt: str, tokens: float) -> None:
    assert asked_tokens(prompt) == pytest.approx(tokens)


@pytest.mark.parametrize(
    "prompt",
    [
        "",
        "What is the capital of France?",
        "I was born 20 years ago. write me something nice",
        "sentences of at most 20 words per sentence",
        "give me 20% off",
        "write 3 days before the deadline",
        "In 1998 the team won 5 of the games",
        "0 words",
        "write 5000000 things",
        "page 12 says nothing",
    ],
)
def test_numbers_that_ask_for_nothing(prompt: str) -> None:
    assert asked_tokens(prompt) is None


def test_more_is_more() -> None:
    asked = [asked_tokens(f"Write at least {n} words on bees") or 0 for n in (100, 500, 2000, 8000)]
    assert asked == sorted(set(asked))


@given(
    st.one_of(
        st.text(max_size=300),
        st.lists(
            st.sampled_from(
                [
                    "5",
                    "k",
                    "two",
                    "thousand",
                    "to",
                    "words",
                    "each",
                    "write",
                    "字",
                    "%",
                    "per",
                    "10,000",
                    "word",
                    "count",
                ]
            )
        ).map(" ".join),
    )
)
def test_any_text_gives_a_bounded_amount_or_none(prompt: str) -> None:
    tokens = asked_tokens(prompt)
    assert tokens is None or 1 <= tokens <= MAX_ASKED_TOKENS


@given(st.text(st.characters(codec="ascii")))
def test_the_fast_rule_for_ascii_finds_the_same_tokens(text: str) -> None:
    assert features._ASCII_TOKEN.findall(text.lower()) == features._TOKEN.findall(text.lower())


@pytest.mark.parametrize("unit", ["9", "1,", "one ", "five words each ", "a", "write me ", "字", "\ud800"])
def test_of_a_huge_prompt_only_the_ends_are_read(unit: str) -> None:
    huge = unit * (1_000_000 // len(unit))
    head, tail = huge[: features.HEAD_CHARACTERS], huge[-features.TAIL_CHARACTERS :]
    assert asked_tokens(huge) == asked_tokens(f"{head}\n{'z ' * 1000}\n{tail}")
    assert len(features._scanned(huge)) == features.HEAD_CHARACTERS + features.TAIL_CHARACTERS + 1


def test_the_tail_is_read() -> None:
    assert asked_tokens("x " * 100_000 + "Answer in 300 words.") == pytest.approx(300 * WORD)


def test_what_the_client_set_is_passed_on() -> None:
    found = features_of("in 10 words", max_tokens=7, choices=2, effort="high", tools=True)
    assert (found.max_tokens, found.choices, found.effort, found.tools) == (7, 2, "high", True)
    assert found.asked_number == pytest.approx(10 * WORD)
