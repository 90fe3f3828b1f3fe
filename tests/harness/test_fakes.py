"""The fakes against what they stand for: a real model's own steps, and this version's types."""

import copy
import os
import pickle
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from chain_model import END, chain, expected, extend, sample
from conftest import MakeWorld
from fake_executor import FakeExecutor
from fake_runner import BrokenStep, FakeRunner
from laws import drain
from real_steps import BLOCK_TOKENS
from vllm.v1.executor import Executor
from vllm.v1.outputs import ModelRunnerOutput

REAL_MODEL = os.environ.get("HARNESS_MODEL", "")
"""A folder with weights; only the environment of `make test-engine` has one."""


def test_the_executor_answers_whatever_vllm_s_asks() -> None:
    assert not getattr(FakeExecutor, "__abstractmethods__", frozenset())
    assert FakeExecutor.execute_model is not Executor.execute_model
    assert FakeExecutor.sample_tokens is not Executor.sample_tokens


def test_the_answer_has_this_version_s_fields(world: MakeWorld) -> None:
    """What a step's answer must have is filled in, and by request as the scheduler reads it."""
    engine = world()
    answers: list[Any] = []
    sample_tokens = engine.core.model_executor.sample_tokens

    def noted(*arguments: Any, **named: Any) -> Any:
        answer = sample_tokens(*arguments, **named)
        answers.append(answer.result() if hasattr(answer, "result") else answer)
        return answer

    engine.core.model_executor.sample_tokens = noted  # type: ignore[method-assign]
    engine.add("a", range(100), 5)
    engine.add("b", range(50), 5)
    drain(engine)
    names = {field.name for field in fields(ModelRunnerOutput)}
    assert {"req_ids", "req_id_to_index", "sampled_token_ids", "logprobs", "prompt_logprobs_dict"} <= names
    for answer in answers:
        assert isinstance(answer, ModelRunnerOutput)
        assert [answer.req_id_to_index[request] for request in answer.req_ids] == list(range(len(answer.req_ids)))
        assert len(answer.sampled_token_ids) == len(answer.req_ids)
    assert any(tokens == [] for answer in answers for tokens in answer.sampled_token_ids), "a prompt in chunks"


@pytest.fixture(scope="module")
def real_steps(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, dict[str, list[int]]]]:
    """Each step of a real model, and the tokens of each request in it."""
    file = tmp_path_factory.mktemp("steps") / "steps.pickle"
    script = Path(__file__).with_name("real_steps.py")
    done = subprocess.run(
        [sys.executable, str(script), REAL_MODEL, str(file)], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    steps: list[tuple[Any, dict[str, list[int]]]] = pickle.loads(file.read_bytes())
    return steps


if REAL_MODEL:

    def test_a_real_runner_s_steps_are_computed_by_the_fake_one(real_steps: list[Any]) -> None:
        """Where a real model generated a token, so does the fake; and it finds nothing that it could not compute."""
        fake = FakeRunner(BLOCK_TOKENS, second_kind=False, overlaps=False, max_adapters=0)
        resumed = 0
        for step, real in real_steps:
            fake.execute(step)
            resumed += len(step.scheduled_cached_reqs.resumed_req_ids)
            for request, tokens in fake.sampled({}).items():
                assert len(tokens) == len(real[request])
                if tokens:  # what goes on is the real text
                    fake.rows[request].tokens[-1] = real[request][0]
        assert resumed > 0, "nobody was preempted"
        assert any(not tokens for _, real in real_steps for tokens in real.values()), "no chunks"

    def test_the_fake_one_finds_a_real_step_that_is_wrong(real_steps: list[Any]) -> None:
        with pytest.raises(BrokenStep):
            replay_with_other_blocks(copy.deepcopy(real_steps))


def replay_with_other_blocks(steps: list[Any]) -> None:
    """Every second block that a request gets later is its neighbour's instead."""
    fake = FakeRunner(BLOCK_TOKENS, second_kind=False, overlaps=False, max_adapters=0)
    for step, _ in steps:
        cached = step.scheduled_cached_reqs
        cached.new_block_ids = [blocks and ([block ^ 1 for block in blocks[0]],) for blocks in cached.new_block_ids]
        fake.execute(step)
        fake.sampled({})


def test_the_chain_says_the_same_whatever_the_batches() -> None:
    prompt = list(range(50))
    said = expected(prompt, 200)
    digest = chain(prompt)[-1]
    for token in said:
        assert token == sample(digest)
        digest = extend(digest, token)
    assert END not in said[:-1]
    assert len(expected(prompt, 200, ends=False)) == 200
    assert expected(prompt, 9, adapter=1, ends=False) != expected(prompt, 9, ends=False)
