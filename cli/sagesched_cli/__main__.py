"""`sagesched`: one command, three rooms. Each is imported only when it is asked for."""

import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version

USAGE = """usage: sagesched [-h | --version] COMMAND [OPTIONS]

Uncertainty-aware request scheduling for LLM serving.

commands:
  demo      a simulated engine and the sidecar under load, first come first served beside sagesched
  sidecar   the OpenAI-compatible scheduling proxy in front of an engine
  engine    a simulated OpenAI-compatible engine that needs no GPU

`sagesched COMMAND --help` tells the options of each.
"""

EXIT_USAGE = 64
EXIT_MISSING = 69

Main = Callable[[Sequence[str]], int]


def _demo(arguments: Sequence[str]) -> int:
    from sagesched_cli.demo.command import main

    return main(arguments)


def _sidecar(arguments: Sequence[str]) -> int:
    from sagesched_sidecar.__main__ import main

    return _forward("sidecar", arguments, main)


def _engine(arguments: Sequence[str]) -> int:
    from sagesched_sim.__main__ import main

    return _forward("engine", arguments, main)


def _forward(command: str, arguments: Sequence[str], main: Callable[[], int]) -> int:
    """Runs a module's own main, which reads the process's arguments."""
    sys.argv = [f"sagesched {command}", *arguments]
    return main()


COMMANDS: dict[str, Main] = {"demo": _demo, "sidecar": _sidecar, "engine": _engine}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code of a command line: the command's own; 64 for one that does not exist, 69 for a missing extra."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] in (["-h"], ["--help"]):
        print(USAGE, end="")
        return 0
    if given[:1] == ["--version"]:
        print(f"sagesched {version('sagesched')}")
        return 0
    if not given or given[0] not in COMMANDS:
        wrong = f"unknown command {given[0]!r}" if given else "a command is missing"
        print(f"{USAGE}\nsagesched: {wrong}", file=sys.stderr)
        return EXIT_USAGE
    try:
        return COMMANDS[given[0]](given[1:])
    except ModuleNotFoundError as missing:
        if (missing.name or "").startswith("sagesched"):
            raise
        print(f"sagesched: {missing.name} is not installed; pip install 'sagesched[cli]'", file=sys.stderr)
        return EXIT_MISSING


if __name__ == "__main__":
    sys.exit(main())
