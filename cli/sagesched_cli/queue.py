"""`sagesched queue`: what waits, in order."""

import argparse
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sagesched_cli import cells
from sagesched_cli.exits import OK
from sagesched_cli.live import add_live_options, console, watch
from sagesched_cli.sidecar_client import add_sidecar_options, fetch_json

if TYPE_CHECKING:
    from rich.table import Table

DESCRIPTION = """What waits, in the order in which it will start: how long it has waited, how long its answer is
predicted to be, and the key that orders it (smaller goes first). A row marked ! is beyond the starvation bound and goes
next, the oldest first. Ctrl-C ends the live view."""
ROWS = 20
MAX_ROWS = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("--rows", type=_rows, default=ROWS, metavar="N", help=f"at most so many (default: {ROWS})")
    add_live_options(parser, interval_s=1.0)
    add_sidecar_options(parser)


def run(given: argparse.Namespace) -> int:
    """Print the queue, once or again and again. Raises CommandError."""

    def ask() -> dict[str, Any]:
        return fetch_json(given.url, f"/sagesched/queue?limit={given.rows}", given.timeout)

    if given.json:
        print(json.dumps(ask(), indent=2))
        return OK
    if given.once or not sys.stdout.isatty():
        console().print(table(ask()))
        return OK
    return watch(lambda: table(ask()), given.interval)


def table(found: Mapping[str, Any]) -> "Table":
    """The rows, and how many more there are."""
    from rich.table import Table
    from rich.text import Text

    waiting, rows = found["waiting"], found["rows"]
    more = f", the first {len(rows)}" if len(rows) < waiting else ""
    out = Table(title=f"{waiting} waiting{more}", title_justify="left", box=None, pad_edge=False)
    for name, justify in _COLUMNS:
        out.add_column(name, justify="right" if justify else "left", no_wrap=True)
    for row in rows:
        out.add_row(*map(Text, _cells(row)))
    return out


_COLUMNS = (
    ("#", True),
    ("request", False),
    ("class", False),
    ("model", False),
    ("age s", True),
    ("tokens", True),
    ("from", False),
    ("index", True),
    ("key", True),
)


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        f"{'!' if row['starving'] else ''}{row['position']}",
        cells.printable(row["request_id"], 36),
        cells.printable(row["class"], 20),
        cells.printable(row["model"], 32),
        cells.seconds(row["age_s"]),
        cells.tokens(row["predicted_tokens"]),
        row["source"],
        f"{row['index']:.3g}",
        f"{row['key']:.6g}",
    )


def _rows(text: str) -> int:
    if not (text.isdecimal() and len(text) <= 6 and 1 <= int(text) <= MAX_ROWS):
        raise argparse.ArgumentTypeError(f"{text!r} is not 1 to {MAX_ROWS}")
    return int(text)
