"""Which mode is in effect: what was not shown is not relied on."""

import pytest

from sagesched.settings import decode
from sagesched_sidecar.engine_mode import EngineMode, Finding

ORDERED, UNORDERED = Finding("ordered", "so"), Finding("unordered", "not so")
UNDECIDED = Finding("undecided", "busy")
PROOF = {"priority": ["--scheduling-policy=priority"], "engine": ["--scheduler-cls=sagesched_vllm.S"]}


def engine(mode, **fields):
    return decode({"engine": {"mode": mode, **fields}}).engine


def seen(mode):
    return mode.now.effective, mode.now.reason


@pytest.mark.parametrize("name", ["gate", "shadow"])
def test_what_any_engine_can_do_is_in_effect_at_once(name):
    mode = EngineMode(engine(name))
    assert seen(mode) == (name, "configured")
    assert not mode.wants_trial


@pytest.mark.parametrize("name", ["priority", "engine"])
def test_the_others_need_to_be_shown(name):
    mode = EngineMode(engine(name))
    assert (seen(mode), mode.wants_trial) == (("gate", "unverified"), True)
    mode.found(UNDECIDED)
    assert (seen(mode), mode.wants_trial, mode.now.detail) == (("gate", "unverified"), True, "busy")
    mode.found(ORDERED)
    assert (seen(mode), mode.wants_trial) == ((name, "trial"), False)
    mode.engine_left()
    assert (seen(mode), mode.wants_trial) == (("gate", "unverified"), True)
    mode.found(UNORDERED)
    assert (seen(mode), mode.wants_trial) == (("gate", "refused"), False)
    assert seen(EngineMode(engine(name, arguments=PROOF[name]))) == (name, "arguments")
    assert seen(EngineMode(engine(name, force=True))) == (name, "forced")
    assert not EngineMode(engine(name, probe=False)).wants_trial


def test_each_change_is_told_once(caplog):
    told = []
    with caplog.at_level("INFO"):
        mode = EngineMode(engine("priority"), told.append)
        for finding in (UNDECIDED, UNDECIDED, ORDERED, ORDERED):
            mode.found(finding)
        mode.configure(engine("priority"))
        mode.configure(engine("gate"))
        mode.configure(engine("priority"))
    assert [m.reason for m in told] == ["unverified", "unverified", "trial", "configured", "unverified"]
    assert len(caplog.records) == len(told)
