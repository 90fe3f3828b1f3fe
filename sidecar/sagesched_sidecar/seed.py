"""History from a file of earlier traffic, learnt before the port opens."""

import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from sagesched.features import features_of
from sagesched.ranking import Ranking
from sagesched.request import Outcome, Request

if TYPE_CHECKING:
    from sagesched.embed import Embedder

PROGRESS_SECONDS = 5.0
LOGGED_BAD_LINES = 10

_log = logging.getLogger(__name__)
_Tokens = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]


class SeedRow(msgspec.Struct, frozen=True):
    """One line of the file."""

    prompt: str
    output_tokens: Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)]
    prompt_tokens: _Tokens | None = None
    model: str = ""
    tenant: str = ""
    censored: bool = False
    max_tokens: _Tokens | None = None


def learn_from_file(path: Path, ranking: Ranking, embedder: "Embedder") -> tuple[int, int]:
    """Learn each line; how many were learnt and how many were skipped. A bad line is skipped, its number logged."""
    decoder = msgspec.json.Decoder(SeedRow)
    learnt = skipped = 0
    said_s = time.monotonic()
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                _learn(decoder.decode(line), number, ranking, embedder)
                learnt += 1
            except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
                skipped += 1
                if skipped <= LOGGED_BAD_LINES:
                    _log.warning("seed line skipped", extra={"line": number, "problem": type(error).__name__})
            if time.monotonic() - said_s > PROGRESS_SECONDS:
                said_s = time.monotonic()
                _log.info("learning from the seed file", extra={"learnt": learnt, "skipped": skipped})
    _log.info("seed file learnt", extra={"learnt": learnt, "skipped": skipped})
    return learnt, skipped


def _learn(row: SeedRow, number: int, ranking: Ranking, embedder: "Embedder") -> None:
    request = Request(
        id=f"seed-{number}",
        model=row.model,
        tenant=row.tenant,
        prompt_tokens=max(1, len(row.prompt) // 4) if row.prompt_tokens is None else row.prompt_tokens,
        features=features_of(row.prompt, max_tokens=row.max_tokens),
    )
    outcome = Outcome(output_tokens=row.output_tokens, prompt_tokens=row.prompt_tokens, censored=row.censored)
    ranking.learn(request, embedder.embed(row.prompt), outcome)
