"""The true lengths, in a file that only the engine can read anything from. The standard library alone: the engine's own
Python imports this too.

A length stands under a hash of the prompt's token ids with a nonce. File and nonce are named in the engine's
environment and nowhere else; neither is of use without the other.
"""

import hashlib
import json
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path

FILE_VARIABLE = "SAGESCHED_BENCH_LENGTHS"
NONCE_VARIABLE = "SAGESCHED_BENCH_NONCE"


def key(nonce: str, token_ids: Sequence[int]) -> str:
    """What a prompt's length stands under."""
    return hashlib.sha256(nonce.encode() + array("q", token_ids).tobytes()).hexdigest()


def write(path: Path, nonce: str, lengths: Iterable[tuple[Sequence[int], int]]) -> dict[str, str]:
    """Write (token ids, output tokens) pairs, readable by this user alone; the engine's environment."""
    path.touch(mode=0o600)
    path.write_text(json.dumps({key(nonce, ids): tokens for ids, tokens in lengths}), encoding="utf-8")
    return {FILE_VARIABLE: str(path), NONCE_VARIABLE: nonce}
