"""A user's own traffic: one JSON object a line with `prompt` and `output_tokens`, in the order of time."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta

from .exchange import Exchange, WorkloadError


class _Line(msgspec.Struct, frozen=True):
    """What a line must hold; other fields are ignored."""

    prompt: str
    output_tokens: Annotated[int, Meta(ge=1, le=1_000_000)]


def parse(lines: Iterable[bytes], name: str) -> Iterator[Exchange]:
    """Exchanges of the lines; empty lines are passed over. Raises WorkloadError naming the line that is wrong."""
    decoder = msgspec.json.Decoder(_Line)
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = decoder.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise WorkloadError(
                f'{name}:{number}: {error}; each line must be like {{"prompt": "...", "output_tokens": 120}}'
            ) from None
        yield Exchange(row.prompt, row.output_tokens)


def read(path: Path) -> tuple[Exchange, ...]:
    """Every exchange of the file. Raises WorkloadError when it cannot be read or holds none."""
    try:
        with path.open("rb") as lines:
            exchanges = tuple(parse(lines, str(path)))
    except OSError as error:
        raise WorkloadError(f"{path}: {error.strerror or error}") from None
    if not exchanges:
        raise WorkloadError(f"{path}: holds no exchange")
    return exchanges
