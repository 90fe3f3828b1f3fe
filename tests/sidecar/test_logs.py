"""Lines of the log: one JSON object each, whose own fields no call takes over."""

import ast
import json
import logging
from pathlib import Path

import pytest

import sagesched_sidecar
from sagesched.scoreboard import Turn
from sagesched_sidecar import telemetry
from sagesched_sidecar.logs import set_up_logs

OWN = {"time", "level", "logger", "message"}
FILES = sorted(Path(sagesched_sidecar.__file__).parent.rglob("*.py"))


def test_a_turn_of_the_predictions_keeps_the_line_s_own_level(capsys: pytest.CaptureFixture[str]) -> None:
    before = logging.getLogger().handlers[:]
    try:
        set_up_logs("info")
        telemetry._tell(Turn("m", "global", -0.04))
    finally:
        logging.getLogger().handlers[:] = before
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["used"], line["model"]) == ("WARNING", "global", "m")


def test_no_call_gives_a_field_of_the_line_s_own() -> None:
    calls = [
        keyword.value
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "extra" and isinstance(keyword.value, ast.Dict)
    ]
    named = {key.value for given in calls for key in given.keys if isinstance(key, ast.Constant)}
    assert len(calls) > 10
    assert not named & OWN
