"""`python -m sagesched_sim`: the engine without a GPU as a server."""

import asyncio
import os
import sys
from collections.abc import Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from sagesched_sim.options import Options, parser
from sagesched_sim.server import serve

EXIT_USAGE = 64


def options_from(arguments: Sequence[str] | None, environment: Mapping[str, str]) -> Options:
    """Options from a command line. Raises ValueError naming the one at fault; argparse exits by itself on unknown."""
    given = vars(parser().parse_args(arguments))
    key_variable = given.pop("api_key_env")
    if key_variable is not None and not environment.get(key_variable):
        raise ValueError(f"api_key_env: the environment variable {key_variable} is not set or empty")
    given["api_key"] = environment[key_variable] if key_variable is not None else None
    given["lengths"] = None if given["lengths"] == "topic" else Path(given["lengths"])
    given["fault_kinds"] = tuple(kind for kind in given["fault_kinds"].split(",") if kind)
    options = Options(**given)
    options.limits()
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves until a signal; 64 where an option is wrong."""
    try:
        options = options_from(arguments, os.environ)
        _run(serve(options))
    except (ValueError, OSError) as error:
        print(f"sagesched_sim: {error}", file=sys.stderr)
        return EXIT_USAGE
    return 0


def _run(serving: Coroutine[Any, Any, None]) -> None:
    """Under uvloop where it is installed, under asyncio's own loop where not."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(serving)
    else:
        uvloop.run(serving)


if __name__ == "__main__":
    sys.exit(main())
