"""The commands and their parsers. A command's room is imported when it is asked for, and for completion."""

import argparse
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import NamedTuple, NoReturn

from sagesched_cli import completion, explain, history, queue, settings, top
from sagesched_cli.exits import EPILOG, USAGE

Main = Callable[[Sequence[str]], int]


class Forwarded(NamedTuple):
    """A command with a main and a parser of its own, in a room that is imported only then."""

    summary: str
    main: Main
    parser: Callable[[], argparse.ArgumentParser]


class Command(NamedTuple):
    """A command of this room."""

    summary: str
    description: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


class Parser(argparse.ArgumentParser):
    """A parser that ends with 64, as all of `sagesched` does."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and end."""
        self.print_usage(sys.stderr)
        self.exit(USAGE, f"{self.prog}: {message}\n")


def _demo(arguments: Sequence[str]) -> int:
    from sagesched_cli.demo.command import main

    return main(arguments)


def _demo_parser() -> argparse.ArgumentParser:
    from sagesched_cli.demo.options import command_line

    return command_line()


def _sidecar(arguments: Sequence[str]) -> int:
    from sagesched_sidecar.__main__ import main

    return _forward("sidecar", arguments, main)


def _sidecar_parser() -> argparse.ArgumentParser:
    from sagesched_sidecar.options import command_line

    return command_line()


def _engine(arguments: Sequence[str]) -> int:
    from sagesched_sim.__main__ import main

    return _forward("engine", arguments, main)


def _engine_parser() -> argparse.ArgumentParser:
    from sagesched_sim.options import parser

    return parser()


def _forward(command: str, arguments: Sequence[str], main: Callable[[], int]) -> int:
    """Runs a module's own main, which reads the process's arguments."""
    sys.argv = [f"sagesched {command}", *arguments]
    return main()


FORWARDED: dict[str, Forwarded] = {
    "sidecar": Forwarded("the OpenAI-compatible scheduling proxy in front of an engine", _sidecar, _sidecar_parser),
    "engine": Forwarded("a simulated OpenAI-compatible engine that needs no GPU", _engine, _engine_parser),
    "demo": Forwarded("engine and sidecar under load, first come first served beside sagesched", _demo, _demo_parser),
}

COMMANDS: dict[str, Command] = {
    "queue": Command("what waits, in order, live", queue.DESCRIPTION, queue.add_arguments, queue.run),
    "explain": Command("why a request stands where it does", explain.DESCRIPTION, explain.add_arguments, explain.run),
    "top": Command("one or more sidecars side by side, live", top.DESCRIPTION, top.add_arguments, top.run),
    "settings": Command(
        "check settings files, and tell what two differ in", settings.DESCRIPTION, settings.add_arguments, settings.run
    ),
    "history": Command(
        "the stored history: status, init, import, export, prune, delete-tenant, migrate",
        history.DESCRIPTION,
        history.add_arguments,
        history.run,
    ),
    "completion": Command(
        "a completion script for a shell", completion.DESCRIPTION, completion.add_arguments, completion.run
    ),
}


def own() -> argparse.ArgumentParser:
    """The parser of everything that this room parses; of the forwarded commands it knows only that they exist."""
    return _tree(lambda commands, name, one: commands.add_parser(name, help=one.summary, add_help=False))


def whole() -> argparse.ArgumentParser:
    """The parser of everything, for completion: imports every room."""

    def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, one: Forwarded) -> None:
        parser = one.parser()
        commands.add_parser(name, help=one.summary, description=parser.description, parents=[parser], add_help=False)

    return _tree(add)


def _tree(
    add: Callable[["argparse._SubParsersAction[argparse.ArgumentParser]", str, Forwarded], object],
) -> argparse.ArgumentParser:
    out: argparse.ArgumentParser = Parser(
        prog="sagesched",
        description="Uncertainty-aware request scheduling for LLM serving.",
        epilog=f"`sagesched COMMAND --help` tells the options of each.\n\n{EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    out.add_argument("--version", action="version", version=f"sagesched {version('sagesched')}")
    commands = out.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, forwarded in FORWARDED.items():
        add(commands, name, forwarded)
    for name, command in COMMANDS.items():
        parser = commands.add_parser(name, help=command.summary, description=command.description)
        command.add_arguments(parser)
        parser.set_defaults(run=command.run)
    return out
