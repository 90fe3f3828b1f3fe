"""`sagesched`: what it takes, what it refuses, and how it ends."""

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from sagesched_cli import exits
from sagesched_cli.__main__ import main
from sagesched_cli.command_line import COMMANDS, FORWARDED
from sagesched_cli.demo.options import parse
from sagesched_cli.demo.progress import Progress


def ended_with(arguments: list[str]) -> int:
    """The exit code of a command line, whichever way it ends."""
    try:
        return main(arguments)
    except SystemExit as ended:
        return int(ended.code or 0)


def test_help_names_every_command_and_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended_with(["--help"]) == 0
    printed = capsys.readouterr().out
    assert all(f"\n    {command}" in printed for command in (*COMMANDS, *FORWARDED))
    codes = {value for name, value in vars(exits).items() if name.isupper() and isinstance(value, int)}
    assert {int(code) for code in re.findall(r"^  (\d+) ", printed, re.M)} == codes


@pytest.mark.parametrize("arguments", [[], ["bake"], ["--nonsense"], ["explain"], ["queue", "--rows", "0"]])
def test_a_wrong_command_ends_with_64(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert ended_with(arguments) == 64
    assert "usage: sagesched" in capsys.readouterr().err


def test_version_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended_with(["--version"]) == 0
    assert capsys.readouterr().out.startswith("sagesched ")


@pytest.mark.parametrize("command", [*FORWARDED, *COMMANDS])
def test_every_command_has_help(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["sagesched"])
    assert ended_with([command, "--help"]) == 0
    assert "usage:" in capsys.readouterr().out


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)])
def test_help_loads_no_other_room(command: tuple[str, ...]) -> None:
    code = f"""
import sys
from sagesched_cli.__main__ import main
try:
    main([*{command!r}, "--help"])
except SystemExit:
    others = {{"aiohttp", "numpy", "rich", "openai", "sagesched", "sagesched_sidecar", "sagesched_sim"}}
    print(sorted(others & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_missing_extra_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: object) -> int:
        raise ModuleNotFoundError("No module named 'openai'", name="openai")

    monkeypatch.setitem(FORWARDED, "demo", FORWARDED["demo"]._replace(main=missing))
    assert main(["demo"]) == 69
    assert "sagesched[cli]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--load", "0"], "--load"),
        (["--requests", "1"], "--requests"),
        (["--policies", "fcfs,lottery"], "--policies"),
        (["--policies", "fcfs,fcfs"], "--policies"),
        (["--seeds", "1,1"], "--seeds"),
        (["--seed", "1", "--seeds", "2,3"], "--seed"),
        (["--out", "report.txt"], "--out"),
        (["--profile", "abacus"], "profile"),
        (["--arrivals", "tides"], "arrivals"),
        (["--kv-tokens", "100"], "--kv-tokens"),
    ],
)
def test_a_wrong_option_is_named_and_ends_with_64(
    arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["demo", *arguments]) == 64
    assert named in capsys.readouterr().err


def test_options_have_the_defaults_that_the_readme_promises() -> None:
    options = parse([])
    assert (options.data, options.load, options.policies) == ("topics", 1.1, ("fcfs", "sagesched"))
    assert options.requests >= 1000
    assert options.out == Path("build/demo.json")
    assert parse(["--seed", "7"]).seeds == (7,)
    assert parse(["--seeds", "1,2,3"]).seeds == (1, 2, 3)


def test_progress_tells_in_lines_where_there_is_no_terminal() -> None:
    now_s = 0.0
    stream = io.StringIO()
    with Progress(4, stream, clock=lambda: now_s) as progress:
        progress.stage("fcfs")
        progress.step()
        now_s = 6.0
        progress.step()
        progress.step()
        progress.step()
    assert stream.getvalue().splitlines() == [f"fcfs: {done} of 4 requests" for done in (0, 2, 4)]
