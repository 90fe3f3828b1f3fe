"""Each feature of the engine with each scheduler class: the laws hold, and the feature did take place."""

import json

import pytest
from conftest import Additional, MakeWorld
from engine_world import BLOCK_TOKENS, World
from hints import told
from laws import after_step, drain
from vllm.sampling_params import StructuredOutputsParams


def prompts(count: int, tokens: int = 40, shared: int = 0) -> list[list[int]]:
    """Different ones, whose first `shared` tokens are the same."""
    return [[*range(shared), *((7 * i + j) % 200 for j in range(tokens - shared))] for i in range(count)]


def run(world: World, steps: int) -> None:
    """So many steps, with the laws after each."""
    for _ in range(steps):
        world.step()
        after_step(world)


def test_plain_requests_say_what_the_model_says(world: MakeWorld) -> None:
    engine = world()
    for i, prompt in enumerate(prompts(12)):
        engine.add(f"r{i}", prompt, 30)
    drain(engine)


def test_a_small_cache_preempts_and_nothing_is_lost(world: MakeWorld, lets_in: Additional) -> None:
    engine = world(blocks=12, slots=8, prefix_caching=False, additional=lets_in)
    for i, prompt in enumerate(prompts(8, 24)):
        engine.add(f"r{i}", prompt, 90, may_end=False)
    drain(engine)
    assert engine.preemptions > 0


def test_a_shared_prefix_is_computed_once(world: MakeWorld) -> None:
    computed = {}
    for caching in (False, True):
        engine = world(prefix_caching=caching)
        for i, prompt in enumerate(prompts(6, 100, shared=96)):
            engine.add(f"r{i}", prompt, 4)
        drain(engine)
        computed[caching] = engine.runner.computed_tokens
    assert computed[True] <= computed[False] - 96 // 2


def test_a_long_prompt_is_computed_in_chunks(world: MakeWorld) -> None:
    engine = world(step_tokens=32, slots=3)
    engine.add("long", prompts(1, 300)[0], 5)
    for i, prompt in enumerate(prompts(4, 10)):
        engine.add(f"short{i}", prompt, 20)
    drain(engine)
    assert engine.runner.steps >= 300 // 32


def test_aborts_wherever_the_request_is(world: MakeWorld) -> None:
    engine = world(slots=2, step_tokens=32)
    for i, prompt in enumerate(prompts(8, 60)):
        engine.add(f"r{i}", prompt, 40)
    engine.abort("r7")  # waits
    run(engine, 1)
    engine.abort("r0")  # half of its prompt is computed
    run(engine, 6)
    engine.abort("r1", "nobody", "r1")  # generates, or did
    run(engine, 2)
    engine.abort(*[f"r{i}" for i in range(2, 5)])
    drain(engine)


def test_a_preempted_request_may_be_aborted(world: MakeWorld, lets_in: Additional) -> None:
    engine = world(blocks=12, slots=8, prefix_caching=False, additional=lets_in)
    for i, prompt in enumerate(prompts(8, 24)):
        engine.add(f"r{i}", prompt, 90)
    for _ in range(200):
        run(engine, 1)
        preempted = [name for name, request in engine.scheduler.requests.items() if request.status.name == "PREEMPTED"]
        if preempted:
            break
    assert preempted
    engine.abort(*preempted)
    drain(engine)


def test_several_choices_share_their_prompt(world: MakeWorld) -> None:
    engine = world(slots=4)
    asks = engine.add("r", prompts(1, 64)[0], 12, n=5)
    drain(engine)
    assert len(asks) == 5
    assert engine.runner.computed_tokens < 5 * 64 + 5 * 12


def test_a_grammar_is_kept(world: MakeWorld) -> None:
    engine = world(blocks=24, slots=4)
    choice = StructuredOutputsParams(regex="alpha|beta|gamma")
    number = StructuredOutputsParams(json=json.dumps({"type": "object", "properties": {"a": {"type": "integer"}}}))
    for i, prompt in enumerate(prompts(6, 30)):
        engine.add(f"choice{i}", prompt, 20, structured_outputs=choice)
        engine.add(f"json{i}", prompt, 60, structured_outputs=number)
        engine.add(f"free{i}", prompt, 25)
    drain(engine)
    for i in range(6):
        said = bytes(token for token in engine.asked[f"choice{i}"].tokens if token < 256).decode()
        assert said in ("alpha", "beta", "gamma")
    assert all(ask.ended.name in ("STOP", "LENGTH") for ask in engine.asked.values())


def test_adapters_take_turns_and_never_share_a_prefix(world: MakeWorld) -> None:
    engine = world(adapters=2, slots=6)
    for i, prompt in enumerate(prompts(12, 64, shared=64)):
        engine.add(f"r{i}", prompt, 10, adapter=i % 4)
    drain(engine)


def test_a_class_s_priority_goes_first(world: MakeWorld) -> None:
    engine = world(policy="priority", slots=1)
    for i, prompt in enumerate(prompts(6)):
        engine.add(f"r{i}", prompt, 8, priority=-i, extra=told(20.0, priority=-i))
    drain(engine)
    assert engine.admitted == [f"r{i}" for i in reversed(range(6))]


def test_the_prefix_cache_is_reset_under_what_runs(world: MakeWorld) -> None:
    engine = world(slots=4)
    for i, prompt in enumerate(prompts(8, 50)):
        engine.add(f"r{i}", prompt, 40)
    run(engine, 12)
    assert engine.scheduler.reset_prefix_cache(reset_running_requests=True)
    drain(engine)


@pytest.mark.parametrize("tokens", [BLOCK_TOKENS - 1, BLOCK_TOKENS, BLOCK_TOKENS + 1, 1])
def test_prompts_at_a_block_s_edge(world: MakeWorld, tokens: int) -> None:
    engine = world(blocks=10, slots=3)
    for i, prompt in enumerate(prompts(6, tokens)):
        engine.add(f"r{i}", prompt, 2 * BLOCK_TOKENS)
    drain(engine)
