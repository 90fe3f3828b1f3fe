"""Shell completion: the script is bash's to run, and it completes what the parsers take."""

import argparse
import subprocess
import sys

import pytest

from sagesched_cli.command_line import COMMANDS, FORWARDED, whole
from sagesched_cli.completion import SHELLS

COMPLETE = """
source <("$1" -m sagesched_cli completion bash) || exit 1
shift
COMP_WORDS=("$@")
COMP_CWORD=$(( $# - 1 ))
_shtab_sagesched
printf '%s\\n' "${COMPREPLY[@]}"
"""


def completed(*words: str) -> set[str]:
    """What bash offers for the last word."""
    command = ["bash", "-c", COMPLETE, "bash", sys.executable, *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    return set(done.stdout.split())


def test_bash_completes_commands_options_and_choices() -> None:
    assert completed("sagesched", "") == {*COMMANDS, *FORWARDED}
    assert completed("sagesched", "que") == {"queue"}
    assert completed("sagesched", "sidecar", "--slo") == {"--slots"}
    assert completed("sagesched", "sidecar", "--policy", "gi") == {"gittins"}
    assert completed("sagesched", "engine", "--max-num-s") == {"--max-num-seqs"}
    assert completed("sagesched", "completion", "") == set(SHELLS)
    assert {"--url", "--json", "--once"} <= completed("sagesched", "top", "--")


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_s_script_names_every_command(shell: str) -> None:
    command = [sys.executable, "-m", "sagesched_cli", "completion", shell]
    script = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert all(name in script for name in (*COMMANDS, *FORWARDED))


def test_the_whole_tree_takes_what_the_rooms_parsers_take() -> None:
    (commands,) = (a for a in whole()._actions if isinstance(a, argparse._SubParsersAction))
    for name, forwarded in FORWARDED.items():
        real = {option for action in forwarded.parser()._actions for option in action.option_strings}
        assert {option for action in commands.choices[name]._actions for option in action.option_strings} == real
