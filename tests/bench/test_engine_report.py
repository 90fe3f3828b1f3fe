"""How runs are planned, and what is made of their figures."""

import argparse
from collections import Counter

import numpy as np
import pytest
from bench.engine.__main__ import plans, rotated
from bench.engine.client import Served
from bench.engine.policies import POLICIES, SLOTS, true_costs
from bench.engine.readings import Reading, full_rate
from bench.engine.report import compare, table, tokens_per_s, tokens_per_s_under_load
from bench.engine.runs import Plan, Run
from bench.engine.workload import Asked, Workload, arrivals


def given(**more: object) -> argparse.Namespace:
    """The command line's defaults, and what is said otherwise."""
    usual = {"loads": [1.3, 0.7], "seeds": [1, 2, 3], "policies": None, "lengths": ["replayed", "own"], "requests": 30}
    return argparse.Namespace(**usual | more)


def run(policy: str, seed: int, ttlt_s: list[float], tokens: int = 10) -> Run:
    """One request a second, with those times to the last token; half of each to the first."""
    served = tuple(Served(float(n), float(n), n + t / 2, n + t, tokens) for n, t in enumerate(ttlt_s))
    return Run(Plan("replayed", 1.3, seed, policy, len(served)), "s", 1.0, served, 2, [0.0], [0.0])


def test_every_policy_has_every_seed_and_the_first_place_goes_round() -> None:
    made = plans(given())
    heavy = [plan for plan in made if (plan.lengths, plan.load) == ("replayed", 1.3)]
    assert {plan.policy for plan in heavy} == set(POLICIES)
    assert len(heavy) == 3 * len(POLICIES) == len(set(heavy))
    assert len({plan.policy for plan in heavy[:: len(POLICIES)]}) == 3, "three seeds begin with three policies"
    light = Counter(plan.policy for plan in made if plan.load == 0.7)
    assert light == dict.fromkeys(set(POLICIES) - {"clairvoyant"}, 3)
    assert {plan.policy for plan in made if plan.lengths == "own"} == {"fcfs", "sagesched-priority", "sagesched-gate"}


def test_turning_keeps_all() -> None:
    assert rotated(["a", "b", "c"], 4) == ["b", "c", "a"]


def test_arrivals_are_the_seed_s_and_the_load_is_the_one_that_is_stated() -> None:
    assert arrivals(1, 2.0, 100) == arrivals(1, 2.0, 100) != arrivals(2, 2.0, 100)
    assert arrivals(1, 2.0, 101)[-1] == pytest.approx(50.0)


def test_the_bound_orders_by_true_cost() -> None:
    asked = (Asked("a", [1] * 10), Asked("b", [1] * 100), Asked("c", [1] * 10))
    assert true_costs(Workload(asked, (30, 20, 5), ())) == [10 * 30 + 450, 100 * 20 + 200, 10 * 5 + 12]


def test_figures_are_pooled_over_seeds_and_compared_request_by_request() -> None:
    slow = {seed: list(np.random.default_rng(seed).uniform(5, 50, 60)) for seed in (1, 2)}
    runs = [run("fcfs", seed, times) for seed, times in slow.items()]
    runs += [run("sagesched-gate", seed, [t / 2 for t in times]) for seed, times in slow.items()]
    compared = compare(runs)
    gate = compared["sagesched-gate"]
    assert gate["requests"] == 120
    assert gate["seeds"] == [1, 2]
    assert gate["preemptions"] == 4
    assert gate["ttlt_s"]["mean"] == pytest.approx(np.mean([*slow[1], *slow[2]]) / 2)
    assert gate["ttft_s"]["mean"] == pytest.approx(gate["ttlt_s"]["mean"] / 2)
    for ratio in gate["over"]["fcfs"]["ttlt"].values():
        assert ratio["low"] == pytest.approx(0.5)
        assert ratio["high"] == pytest.approx(0.5)
    assert compared["fcfs"]["over"] == {}
    assert any("-50.0 %" in line for line in table("x", compared))


def test_tokens_per_second_last_from_the_first_arrival_to_the_last_token() -> None:
    assert tokens_per_s(run("fcfs", 1, [5.0, 9.0])) == pytest.approx(20 / 10)


def test_under_load_what_comes_after_the_last_arrival_does_not_count() -> None:
    served = run("fcfs", 1, [2.0, 2.0, 2.0])
    # Tokens flow from 1 to 2, 2 to 3 and 3 to 4; the last arrival is at 2.
    assert tokens_per_s_under_load(served) == pytest.approx(10 / 2)


def test_capacity_is_read_while_every_place_is_taken_and_others_wait() -> None:
    full = [Reading(float(s), SLOTS, 3, 100.0 * s, 0) for s in range(5, 20)]
    edges = [Reading(0.0, 3, 0, 0.0, 0), Reading(30.0, SLOTS, 0, 1e6, 0)]
    assert full_rate([edges[0], *full, edges[1]]) == pytest.approx(100.0)
    with pytest.raises(ValueError, match="not full"):
        full_rate(full[:3])
