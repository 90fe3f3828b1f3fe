"""The gain that the rule expects, against the same request preempted and not in a small engine, played many times."""

import heapq
import itertools
import random

import pytest

from sagesched.preemption import Decision, Line, Pace, Pressure, Runner, Waiter, choose
from sagesched.settings import Preemption
from sagesched.waiting import Rank

MEMORY = 100.0
"""KV tokens of a waiting request, on average over its run."""
RUN_S = 1.0
"""Its mean run."""
TOKEN_S = 1e-6
"""A step: so short that what it costs is nothing."""


def ends(free_s: list[float], runs_s: list[float]) -> tuple[float, list[float]]:
    """When all of these end, together, each taking the place that is free first; and when places are free then."""
    heapq.heapify(free_s)
    total = 0.0
    for run_s in runs_s:
        end_s = free_s[0] + run_s
        heapq.heapreplace(free_s, end_s)
        total += end_s
    return total, sorted(free_s)


def saved_s(places: int, of_victim: int, waiting: int, victim_run_s: float, rng: random.Random) -> float:
    """Seconds by which all end sooner, together, where the victim gives its `of_victim` places to the line."""
    others = [rng.expovariate(1 / RUN_S) for _ in range(places - of_victim)]
    line = [rng.expovariate(1 / RUN_S) for _ in range(waiting)]
    run_s = rng.expovariate(1 / victim_run_s)
    kept, _ = ends([*others, *[run_s] * of_victim], line)
    gave_way, free_s = ends([*others, *[0.0] * of_victim], line)
    return kept + run_s - (gave_way + free_s[of_victim - 1] + run_s)


def ruled(
    places: int, of_victim: int, waiting: int, victim_run_s: float, pressure: Pressure, **more: float
) -> Decision:
    """What the rule says of it. `more`: of the runner, and how many stand `behind` it."""
    tokens, victim_tokens = RUN_S / TOKEN_S, victim_run_s / TOKEN_S
    line = [Waiter(Rank(0, 1.0, 0.0, f"w{i:03}"), 1.0, tokens, tokens * MEMORY, MEMORY) for i in range(waiting)]
    memory = of_victim * MEMORY
    behind = Waiter(Rank(0, 3.0, 0.0, "z"), 3.0, tokens, tokens * MEMORY, MEMORY)
    line += [behind] * int(more.pop("behind", 0))
    fields = {"held_tokens": memory, "recompute_tokens": 0.0} | more
    victim = Runner(Rank(0, 2.0, 0.0, "v"), 2.0, victim_tokens, victim_tokens * memory, **fields)  # type: ignore[arg-type]
    pace = Pace(places, places * MEMORY, token_s=TOKEN_S, recompute_token_s=TOKEN_S)
    return choose([victim], Line(line), pressure, pace, Preemption(hysteresis=0.0))


@pytest.mark.parametrize("waiting", [16, 64])
@pytest.mark.parametrize("victim_run_s", [1.5, 3.0, 10.0])
@pytest.mark.parametrize(
    ("places", "of_victim", "pressure"),
    [(8, 1, Pressure.SLOTS), (32, 1, Pressure.SLOTS), (16, 2, Pressure.KV), (32, 4, Pressure.KV)],
)
def test_it_is_what_two_engines_differ_in(
    places: int, of_victim: int, pressure: Pressure, waiting: int, victim_run_s: float
) -> None:
    rng = random.Random(f"{places} {of_victim} {waiting} {victim_run_s}")
    played = [saved_s(places, of_victim, waiting, victim_run_s, rng) for _ in range(1500)]
    mean_s = sum(played) / len(played)
    error_s = (sum((one - mean_s) ** 2 for one in played) / len(played) ** 2) ** 0.5
    assert ruled(places, of_victim, waiting, victim_run_s, pressure).gain == pytest.approx(
        mean_s, rel=0.3, abs=3 * error_s
    )


def test_work_alone_would_promise_many_times_as_much() -> None:
    """Why the gain is not the victim's remaining work times those ahead: most of them start while it would run."""
    by_work_s = 16 * (10.0 - RUN_S) / 32
    assert ruled(32, 1, 16, 10.0, Pressure.SLOTS).gain < by_work_s / 10


@pytest.mark.parametrize("pressure", Pressure)
def test_it_grows_with_the_line(pressure: Pressure) -> None:
    gains = [ruled(16, 1, waiting, 3.0, pressure).gain for waiting in (1, 4, 16, 64, 256)]
    assert all(a < b for a, b in itertools.pairwise(gains))


@pytest.mark.parametrize("pressure", Pressure)
def test_who_is_as_large_as_the_mean_ahead_is_no_gain(pressure: Pressure) -> None:
    assert ruled(16, 1, 16, RUN_S * 0.999, pressure).reason == "cost"


def test_the_cost_is_the_resume_for_everyone() -> None:
    decision = ruled(16, 1, 16, 10.0, Pressure.SLOTS, recompute_tokens=5.0)
    assert decision.cost == pytest.approx(17 * 5 * TOKEN_S)
    assert ruled(16, 1, 16, 10.0, Pressure.SLOTS, recompute_tokens=5e6) == Decision("cost")


def test_no_resume_is_cheaper_than_a_step() -> None:
    """Or places would be taken for gains far below what is known of anything."""
    assert ruled(16, 1, 16, 10.0, Pressure.SLOTS).cost == pytest.approx(17 * TOKEN_S)


def test_who_comes_behind_a_large_victim_loses_while_its_places_gather() -> None:
    alone = ruled(32, 8, 16, 3.0, Pressure.KV)
    followed = ruled(32, 8, 16, 3.0, Pressure.KV, behind=50)
    assert 0 < followed.gain < alone.gain
    assert ruled(32, 1, 16, 3.0, Pressure.KV, behind=50).gain == ruled(32, 1, 16, 3.0, Pressure.KV).gain
