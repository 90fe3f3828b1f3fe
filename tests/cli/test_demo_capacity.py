"""Capacity: by the engine's own steps."""

import pytest

from sagesched_cli.demo.capacity import capacity_rps
from sagesched_sim.profile import profile_named
from sagesched_sim.workload.exchange import Exchange

PROFILE = "llama-3.1-8b-rtx4090"


def test_one_request_takes_its_steps() -> None:
    """One prefill step gives the first token, each other step one more."""
    profile = profile_named(PROFILE)
    rate = capacity_rps([Exchange("word", 50)], profile=PROFILE, slots=1, kv_tokens=40_000)
    assert 1 / rate == pytest.approx(50 * profile.step_s(1, 0, 40), rel=0.05)


def test_more_slots_serve_more_and_no_order_is_left_to_chance() -> None:
    exchanges = [Exchange(f"prompt {n}", 20 + n % 60) for n in range(120)]
    few, many = (capacity_rps(exchanges, profile=PROFILE, slots=slots, kv_tokens=40_000) for slots in (2, 8))
    assert 3 * few < many < 4.5 * few
    assert capacity_rps(exchanges, profile=PROFILE, slots=8, kv_tokens=40_000) == many


def test_a_small_cache_serves_less() -> None:
    exchanges = [Exchange(f"prompt {n}", 400) for n in range(200)]
    small, large = (capacity_rps(exchanges, profile=PROFILE, slots=64, kv_tokens=size) for size in (8192, 40_000))
    assert small < 0.8 * large
