"""Prompts: their text, and how many tokens that is. The tokenizer is a plain one: four characters are a token."""

import zlib
from collections.abc import Iterable
from typing import Any, Final

CHARACTERS_PER_TOKEN: Final = 4
_VOCABULARY: Final = 128_000


def count_tokens(text: str) -> int:
    """Tokens of `text`: one for every four characters begun, and never none."""
    return max(1, -(-len(text) // CHARACTERS_PER_TOKEN))


def token_ids(text: str) -> list[int]:
    """One id a token, as many as `count_tokens` says; equal pieces of text have equal ids."""
    step = CHARACTERS_PER_TOKEN
    pieces = [text[at : at + step] for at in range(0, len(text), step)] or [""]
    return [zlib.crc32(piece.encode("utf-8", "surrogatepass")) % _VOCABULARY for piece in pieces]


def content_text(content: Any) -> str:
    """The text of a message's `content`: a string, or the text parts of a list of parts; others count for nothing."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(part["text"] for part in content if isinstance(part, dict) and isinstance(part.get("text"), str))


def chat_template(turns: Iterable[tuple[str, str]]) -> str:
    """The (role, text) turns as the engine would see them, ready for the assistant's answer (ChatML)."""
    rendered = [f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns]
    return "".join(rendered) + "<|im_start|>assistant\n"
