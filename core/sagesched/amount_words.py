"""The words by which `features` reads an amount of text: units, numbers, and the words around them.

English in full; of German, Spanish, French, Italian, Portuguese, Russian, Chinese, Japanese and Korean what is common
in prompts. All are lower case and single words.
"""

from collections.abc import Mapping


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


TOKENS_PER: Mapping[str, float] = {
    "character": 0.25,
    "word": 1.3,
    "ideograph": 1.0,
    "line": 12.0,
    "sentence": 25.0,
    "paragraph": 120.0,
    "page": 650.0,
    "chapter": 1000.0,
    "item": 50.0,
}
"""Tokens per unit, English by a Llama-like tokenizer: 500 words to a page; an item is a list entry of two lines."""

_UNIT_WORDS = {
    "character": "character characters chars zeichen caracteres caractères caratteri символов",
    "word": "word words wörter wörtern worte palabra palabras mot mots palavra palavras parole слов слова woorden",
    "line": "line lines zeilen líneas lignes righe linhas",
    "sentence": "sentence sentences satz sätze sätzen frase frases oración oraciones phrase phrases frasi предложений",
    "paragraph": "paragraph paragraphs absatz absätze párrafo párrafos paragraphe paragraphes parágrafos paragrafi",
    "page": "page pages seite seiten página páginas pagina pagine страниц",
    "chapter": "chapter chapters kapitel capítulo capítulos chapitre chapitres",
}
UNITS: Mapping[str, str] = {word: unit for unit, words in _UNIT_WORDS.items() for word in words.split()}
"""Unit word to its name in `TOKENS_PER`; `features` finds ideographs itself, as their text has no word breaks."""

_SMALL_NUMBERS = {
    1: "one eine einem einen un una une",
    2: "two zwei dos deux due couple",
    3: "three drei tres trois tre",
    4: "four vier cuatro quatre quattro",
    5: "five fünf cinco cinq cinque",
    6: "six sechs seis",
    7: "seven sieben siete sept",
    8: "eight acht ocho huit",
    9: "nine neun nueve neuf",
    10: "ten zehn diez dix dieci",
    11: "eleven elf",
    12: "twelve dozen zwölf doce douze",
    13: "thirteen",
    14: "fourteen",
    15: "fifteen quince quinze",
    16: "sixteen",
    17: "seventeen",
    18: "eighteen",
    19: "nineteen",
    20: "twenty zwanzig veinte vingt",
    30: "thirty",
    40: "forty",
    50: "fifty fünfzig cincuenta cinquante",
    60: "sixty",
    70: "seventy",
    80: "eighty",
    90: "ninety",
    100: "cien cent cento",
    200: "doscientas",
    300: "trescientas",
    500: "quinientas",
}
NUMBERS: Mapping[str, int] = {word: value for value, words in _SMALL_NUMBERS.items() for word in words.split()}
MULTIPLIERS: Mapping[str, int] = {
    "hundred": 100,
    "hundert": 100,
    "k": 1000,
    "thousand": 1000,
    "tausend": 1000,
    "mil": 1000,
    "mille": 1000,
    "千": 1000,
    "万": 10_000,
}
RANGE_JOINS = _words("to or bis oder a à o ou")

EACH = _words("each apiece jeweils cada chacun chacune")
"""After a unit: the amount holds for each item."""

ASKS = _words(
    """
    write give list create generate suggest provide make come name tell need find propose share produce show
    explain identify describe brainstorm want compose draft outline offer recommend include develop prepare
    state top add send schreibe schreib nenne gib erstelle liste escribe dame haz crea genera écris donne fais
    cite crée scrivi dammi
    """
)
"""Words that ask for the items named after them."""

BETWEEN = _words(
    """
    me us down up with out at least the a an list of about around approximately roughly exactly another some or
    more than over best most your my maximum minimum please mir uns eine ein einen una un une lista los las les
    mejores meilleurs moi nous mindestens al menos moins au de von
    """
)
"""Words that may stand between asking and the number: "give ME A LIST OF five tips"."""

NOT_ITEMS = _words(
    """
    year years month months week weeks day days hour hours minute minutes min mins second seconds ms am pm
    percent times dollars usd euros million billion kb mb gb px km kg cm mm m g o st nd rd th or to and of in on
    at by for from is are the jahre tage años días ans jours
    """
)
"""After a number these are no list entries: "write 3 DAYS before"."""

NOT_ADJECTIVES = _words(
    """
    of the in on to from for with and or is are was that this what a an my your each per which at by
    """
)
"""Words that cannot stand between a number and its unit: "5 long paragraphs" counts, "5 of the words" does not."""
