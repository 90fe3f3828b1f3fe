"""A view that is drawn anew until it is interrupted."""

import argparse
import signal
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from sagesched_cli.exits import OK, CommandError
from sagesched_cli.sidecar_client import positive_s

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

PLAIN_WIDTH = 160
"""Columns where there is no terminal."""


def add_live_options(parser: argparse.ArgumentParser, interval_s: float) -> None:
    """`--once`, `--json` and `--interval`."""
    parser.add_argument("--once", action="store_true", help="print it once; so it is without a terminal")
    parser.add_argument("--json", action="store_true", help="print it once, as JSON")
    parser.add_argument(
        "--interval",
        type=positive_s,
        default=interval_s,
        metavar="SECONDS",
        help=f"between two looks (default: {interval_s:g})",
    )


def console() -> "Console":
    """Where views are drawn."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else PLAIN_WIDTH)


def watch(draw: Callable[[], "RenderableType"], interval_s: float) -> int:
    """Draw until SIGINT or SIGTERM, which are the way to end it. The first drawing may raise CommandError; what later
    ones raise is shown until one works again."""
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    shown: RenderableType = draw()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with Live(shown, console=console(), auto_refresh=False, screen=True) as live:
            while True:
                time.sleep(interval_s)
                try:
                    shown = draw()
                    live.update(shown, refresh=True)
                except CommandError as error:
                    live.update(Group(Text(str(error), style="bold red"), shown), refresh=True)
    except KeyboardInterrupt:
        return OK
