"""What an engine's argument list says, in the forms in which operators write it."""

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagesched.engine_arguments import EngineFacts, problem_of_mode, proves_mode, read_arguments
from sagesched.settings import SettingsError, decode


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("", EngineFacts()),
        ("vllm serve org/model --max-num-seqs 16", EngineFacts(None, None, 16, ("org/model",), True)),
        ("--model=m --max_num_seqs=8", EngineFacts(None, None, 8, ("m",), True)),
        ("--model m --served-model-name a b -tp 2", EngineFacts(None, None, None, ("a", "b"), True)),
        ("--scheduling-policy fcfs --scheduling-policy priority", EngineFacts("priority", complete=True)),
        ("serve m --config file.yaml", EngineFacts(served_models=("m",), complete=False)),
        ("--scheduler-cls sagesched_vllm.Scheduler", EngineFacts(None, "sagesched_vllm.Scheduler", complete=True)),
        ("--max-num-seqs many --scheduling-policy", EngineFacts(complete=True)),
    ],
)
def test_what_they_say(words, expected):
    assert read_arguments(shlex.split(words)) == expected


@given(st.lists(st.text(max_size=8) | st.sampled_from(["--model", "serve", "--max-num-seqs", "=", "--", "-1"])))
def test_any_words_are_read(words):
    facts = read_arguments(words)
    for mode in ("gate", "shadow", "priority", "engine"):
        assert not (problem_of_mode(mode, facts) and proves_mode(mode, facts))


@pytest.mark.parametrize(
    ("mode", "words", "refused"),
    [
        ("priority", "--model m", True),
        ("priority", "--model m --scheduling-policy fcfs", True),
        ("priority", "--model m --config f", False),
        ("priority", "", False),
        ("priority", "--scheduling-policy=priority", False),
        ("engine", "--model m", True),
        ("engine", "--scheduler-cls other.Scheduler", True),
        ("engine", "--scheduler-cls sagesched_vllm.scheduler.SageScheduler", False),
        ("gate", "--model m", False),
        ("shadow", "--model m", False),
    ],
)
@pytest.mark.parametrize("force", [False, True])
def test_a_mode_that_the_arguments_rule_out_is_refused_whether_forced_or_not(mode, words, refused, force):
    document = {"engine": {"mode": mode, "arguments": shlex.split(words), "force": force}}
    if not refused:
        assert decode(document).engine.mode == mode
        return
    with pytest.raises(SettingsError, match=r"^engine\.mode: .*engine\.arguments"):
        decode(document)


def test_slots_that_are_set_outweigh_those_of_the_arguments():
    arguments = ["--max-num-seqs", "16"]
    assert decode({"engine": {"arguments": arguments}}).engine.known_slots == 16
    assert decode({"engine": {"arguments": arguments, "slots": 4}}).engine.known_slots == 4
    assert decode({}).engine.known_slots is None
