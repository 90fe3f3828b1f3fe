"""`sagesched completion SHELL`: a script that completes commands and options."""

import argparse

from sagesched_cli.exits import OK

SHELLS = ("bash", "zsh", "tcsh")
DESCRIPTION = """Prints a completion script. bash: put `source <(sagesched completion bash)` in ~/.bashrc. zsh: write it
to a file named _sagesched on $fpath. tcsh: `sagesched completion tcsh > ~/.sagesched.tcsh` and source that."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("shell", choices=SHELLS, help="whose script to print")


def run(given: argparse.Namespace) -> int:
    """Print it."""
    import shtab

    from sagesched_cli.command_line import whole

    print(shtab.complete(whole(), given.shell))
    return OK
