"""What the engine's metrics say and teach."""

from hypothesis import given
from hypothesis import strategies as st

from sagesched_sidecar.engine_state import EngineState, SlotLearner, read_metrics

VLLM = """# HELP vllm:num_requests_running x
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="a, \\"b\\" }"} 3.0
vllm:num_requests_waiting{engine="0",model_name="m"} 1.0
vllm:num_requests_waiting_by_reason{reason="x"} 7.0
vllm:cache_config_info{block_size="16",engine="0",%snum_gpu_blocks="100"} 1.0
"""


def test_vllms_metrics():
    assert read_metrics(VLLM % 'kv_cache_size_tokens="1500",') == EngineState(3, 1, 1500, 16)
    assert read_metrics(VLLM % "") == EngineState(3, 1, 1600, 16)
    assert read_metrics("vllm:num_requests_running 2\n") == EngineState(2, None, None)
    assert read_metrics((VLLM + VLLM) % ("", "")) == EngineState(6, 2, 3200, 16)


@given(st.text())
def test_any_text_is_tolerated(text):
    assert read_metrics("vllm:num_requests_running" + text + "\nvllm:cache_config_info{" + text).waiting is None


def simulate(learner, true_slots, looks, demand=10_000, unlucky=()):
    """Look at an engine of `true_slots` behind a gate that sends as many as were learnt."""
    for look in range(looks):
        sent = min(demand, learner.slots or 256)
        running = min(sent, 3 if look in unlucky else true_slots)
        learner.see(EngineState(running, sent - running), gate_waiting=demand - sent, gate_running=sent)
    return learner.slots


def test_values_that_are_no_numbers_say_nothing():
    for value in ("NaN", "+Inf", "x", ""):
        assert read_metrics(f"vllm:num_requests_running {value}\n").running is None


def test_slots_are_learnt_when_requests_wait_in_the_engine():
    assert simulate(SlotLearner(), 16, 3) == 16


def test_nothing_is_learnt_while_nothing_waits():
    assert simulate(SlotLearner(), 16, 50, demand=4) is None


def test_a_count_from_an_unlucky_moment_is_outgrown():
    assert simulate(SlotLearner(), 64, 400, unlucky=(0, 1)) >= 64


def test_tries_beyond_the_slots_become_rare():
    learner = SlotLearner()
    simulate(learner, 16, 1000)
    beyond = 0
    for _ in range(100):
        beyond += (learner.slots or 0) > 16
        simulate(learner, 16, 10)
    assert beyond < 10
    assert 16 <= learner.slots <= 20
