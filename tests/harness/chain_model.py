"""A model whose KV cache is a chain: each position holds a digest of every token up to it, made from the one before.

What a request generates is then a function of its own tokens alone, as with a real model under greedy sampling, but
only while every position that it reads lies in its own blocks and was computed. A block that was given away, a token
left out or counted twice, another adapter's cache: each changes the text, and `expected` tells what it should be.
"""

from collections.abc import Iterable, Sequence

END = 257
"""The token that ends a text by itself; 0 to 255 are bytes."""
_WORD = (1 << 61) - 1
_END_IN = 40
"""Of so many tokens one is END."""


def extend(digest: int, token: int) -> int:
    """The chain's next link."""
    return (digest * 1_000_003 + token * 7_919 + 12_345) % _WORD


def chain(tokens: Iterable[int], adapter: int = 0) -> list[int]:
    """What the cache holds for these tokens, from the first on; another LoRA adapter is another model."""
    digest, links = extend(17, adapter), []
    for token in tokens:
        digest = extend(digest, token)
        links.append(digest)
    return links


def sample(digest: int, allowed: Sequence[int] | None = None) -> int:
    """The token after that context, among those that a grammar allows."""
    mixed = (digest * 0x9E3779B97F4A7C15 & (1 << 64) - 1) >> 20
    if allowed is not None:
        return allowed[mixed % len(allowed)]
    return END if mixed % _END_IN == 0 else (mixed >> 8) % 256


def expected(prompt: Sequence[int], max_tokens: int, adapter: int = 0, *, ends: bool = True) -> list[int]:
    """What that prompt generates, computed without blocks or batches; with `ends`, nothing after END."""
    digest, out = chain(prompt, adapter)[-1], []
    while len(out) < max_tokens and not (ends and END in out[-1:]):
        out.append(sample(digest))
        digest = extend(digest, out[-1])
    return out
