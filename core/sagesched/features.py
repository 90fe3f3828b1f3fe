"""What a prompt asks for that its embedding hardly shows: the amount of output, as approximate tokens.

"Write 500 words" and "write 5000 words" have almost the same embedding and very different answers. The amount is read
by one pass over the words of the prompt's first `HEAD_CHARACTERS` and last `TAIL_CHARACTERS`; each step looks at a
fixed number of neighbours, so the time is linear in a bounded text, whatever it holds.

Units become tokens by `amount_words.TOKENS_PER`. Those are orders of magnitude, not predictions: the predictor compares
two requests by them, so only their ratios matter.
"""

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet

from sagesched.amount_words import (
    ASKS,
    BETWEEN,
    EACH,
    MULTIPLIERS,
    NOT_ADJECTIVES,
    NOT_ITEMS,
    NUMBERS,
    RANGE_JOINS,
    TOKENS_PER,
    UNITS,
)
from sagesched.request import Features

HEAD_CHARACTERS = 3000
TAIL_CHARACTERS = 2000
MAX_ASKED_TOKENS = 200_000.0
MAX_ITEMS = 1000
"""A larger number of things is no list but a year, a price or an amount of data."""

MIN_CHARACTERS = 50
"""Fewer characters are people in a story, which are items."""

_TOKEN = re.compile(r"[^\W\d_]+|\d+(?:[.,]\d+)*|[.!?;%\n]")
_ASCII_TOKEN = re.compile(r"[a-z]+|[0-9]+(?:[.,][0-9]+)*|[.!?;%\n]")
"""The same rule for ASCII text alone, in half the time."""
_DIGIT = re.compile(r"\d")
_THOUSANDS = re.compile(r"[.,](?=\d{3}(?:[.,]|$))")
_IDEOGRAPHS = re.compile(r"([千万]?)[个個汉漢文]?[字자]")
_NUMBER_WORDS = frozenset((*NUMBERS, *MULTIPLIERS))
_END = "\n"


def features_of(
    prompt: str, *, max_tokens: int | None, choices: int = 1, effort: str = "", tools: bool = False
) -> Features:
    """The features of one request: those that its client set, and the amount of output that the prompt asks for."""
    return Features(
        asked_number=asked_tokens(prompt), max_tokens=max_tokens, choices=choices, effort=effort, tools=tools
    )


def asked_tokens(prompt: str) -> float | None:
    """The largest amount that the prompt asks for, in approximate tokens, 1 to `MAX_ASKED_TOKENS`; None if none."""
    scanned = _scanned(prompt).lower()
    tokens = [*(_ASCII_TOKEN if scanned.isascii() else _TOKEN).findall(scanned), _END, _END]
    spelt: AbstractSet[str] = _NUMBER_WORDS.intersection(tokens)
    if _DIGIT.search(scanned):
        spelt |= {token for token in set(tokens) if token[0].isdecimal()}
    if not spelt:
        return None
    numbers = [at for at, token in enumerate(tokens) if token in spelt]
    lengths, each, counts = [0.0], [0.0], [0.0]
    for at in numbers:
        if _is_number(tokens[at + 1]):
            continue
        run = _number_run(tokens, at)
        value, before, unit_at = _value(run), at - len(run), _unit_after(tokens, at)
        if unit_at and not (value < MIN_CHARACTERS and UNITS.get(tokens[unit_at]) == "character"):
            (each if tokens[unit_at + 1] in EACH else lengths).append(value * _tokens_per(tokens[unit_at]))
        elif before > 0 and tokens[before - 1 : before + 1] == ["word", "count"]:
            lengths.append(value * TOKENS_PER["word"])
        elif 2 <= value <= MAX_ITEMS and _is_item(tokens[at + 1]) and _is_asked(tokens, before):
            counts.append(value)
    largest = max(*lengths, *each, max(counts) * (max(each) or TOKENS_PER["item"]))
    return min(max(largest, 1.0), MAX_ASKED_TOKENS) if largest else None


def _scanned(prompt: str) -> str:
    if len(prompt) <= HEAD_CHARACTERS + TAIL_CHARACTERS:
        return prompt
    return prompt[:HEAD_CHARACTERS] + _END + prompt[-TAIL_CHARACTERS:]


def _unit_after(tokens: Sequence[str], number_at: int) -> int | None:
    """Where the unit is that the number counts, with at most two adjectives between; "words per sentence" is none."""
    for at in range(number_at + 1, min(number_at + 4, len(tokens) - 1)):
        token = tokens[at]
        if _tokens_per(token):
            return None if tokens[at + 1] == "per" else at
        if token in NOT_ADJECTIVES or not token[0].isalpha():
            return None
    return None


def _tokens_per(unit: str) -> float:
    """Tokens in one of the unit that the word names; 0 when it names none."""
    name = UNITS.get(unit)
    if name:
        return TOKENS_PER[name]
    ideographs = _IDEOGRAPHS.match(unit)
    return TOKENS_PER["ideograph"] * MULTIPLIERS.get(ideographs[1], 1) if ideographs else 0.0


def _is_item(noun: str) -> bool:
    return noun[0].isalpha() and noun not in NOT_ITEMS and noun not in NOT_ADJECTIVES


def _is_asked(tokens: Sequence[str], last: int) -> bool:
    """Whether a word that asks stands at most five words back, with nothing but fillers between."""
    for token in reversed(tokens[max(0, last - 5) : last + 1]):
        if token in ASKS:
            return True
        if token not in BETWEEN:
            return False
    return False


def _is_number(token: str) -> bool:
    return token[0].isdecimal() or token in _NUMBER_WORDS


def _number_run(tokens: Sequence[str], last: int) -> list[str]:
    """The six tokens at most of the number that ends at `last`: "two thousand five hundred", "10 12", "3 to 4"."""
    first = last
    while first > 0 and last - first < 5:
        if _is_number(tokens[first - 1]):
            first -= 1
        elif first > 1 and tokens[first - 1] in RANGE_JOINS and _is_number(tokens[first - 2]):
            first -= 2
        else:
            break
    return list(tokens[first : last + 1])


def _value(run: Sequence[str]) -> float:
    """The value of a run of number tokens; of a range, its upper end."""
    total = current = 0.0
    for token in run:
        factor = MULTIPLIERS.get(token)
        if factor == 100:
            current = (current or 1) * 100
        elif factor:
            total, current = total + (current or 1) * factor, 0.0
        elif token in NUMBERS:
            current += NUMBERS[token]
        elif token in RANGE_JOINS:
            total = current = 0.0
        else:
            total, current = 0.0, _decimal(token)
    return total + current


def _decimal(token: str) -> float:
    """The value of digits such as 5000, 5,000, 5.000 (thousands too) and 1.5."""
    plain = _THOUSANDS.sub("", token[:12]).replace(",", ".")
    return float(plain.rstrip(".")) if plain.rstrip(".").count(".") < 2 else 0.0
