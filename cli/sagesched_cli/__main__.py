"""`sagesched`: one command, three rooms. Each is imported only when it is asked for."""

import sys
from collections.abc import Sequence

from sagesched_cli.cells import printable
from sagesched_cli.command_line import FORWARDED, own
from sagesched_cli.exits import INTERRUPTED, UNAVAILABLE, CommandError

MESSAGE_CHARACTERS = 500


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of a command line (exits.py)."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _run(given)
    except CommandError as error:
        print(f"sagesched: {printable(str(error), MESSAGE_CHARACTERS)}", file=sys.stderr)
        return error.code
    except KeyboardInterrupt:
        return INTERRUPTED
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("sagesched"):
            raise
        print(f"sagesched: {missing.name} is not installed; pip install 'sagesched[cli]'", file=sys.stderr)
        return UNAVAILABLE


def _run(given: list[str]) -> int:
    """What follows a forwarded command is its own to read. Raises SystemExit on wrong options and help."""
    forwarded = FORWARDED.get(given[0]) if given else None
    if forwarded is not None:
        return forwarded.main(given[1:])
    parsed = own().parse_args(given)
    code: int = parsed.run(parsed)
    return code


if __name__ == "__main__":
    sys.exit(main())
