"""Two orders on the same traffic: the candidate's next one, and waits as a plain simulation finds them."""

from collections.abc import Callable
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagesched.comparison import Comparison
from sagesched.history import Vector
from sagesched.ranking import Ranking
from sagesched.replay import Replay
from sagesched.request import Features, Outcome, Request
from sagesched.waiting import Rank

LAW = settings(max_examples=80, deadline=None)
FOREVER_S = 1e9


class Job(NamedTuple):
    """One request of a trace, times in seconds."""

    arrival_s: int
    service_s: int
    key: int
    served: bool


jobs = st.lists(
    st.builds(Job, st.integers(0, 30), st.integers(1, 12), st.integers(0, 5), st.integers(0, 9).map(bool)), max_size=14
)


def simulated(trace: list[Job], slots: int, max_wait_s: float) -> dict[int, float]:
    """Waits by place in the trace, second by second: of what has come, the smallest rank goes next, or who starves."""
    waits: dict[int, float] = {}
    running: list[int] = []
    waiting: list[int] = []
    for second in range(30 + 12 * len(trace) + 1):
        running = [end for end in running if end > second]
        # Who waits takes the slots that fall free before whoever comes in that second; of those, the first comes first.
        for k in [None, *(k for k, job in enumerate(trace) if job.served and job.arrival_s == second)]:
            waiting += [] if k is None else [k]
            while waiting and len(running) < slots:
                _start(trace, waiting, running, waits, second, max_wait_s)
    return waits


def _start(
    trace: list[Job], waiting: list[int], running: list[int], waits: dict[int, float], second: int, max_wait_s: float
) -> None:
    oldest = min(waiting, key=lambda k: (trace[k].arrival_s, k))
    starves = second - trace[oldest].arrival_s > max_wait_s
    chosen = oldest if starves else min(waiting, key=lambda k: (trace[k].key, trace[k].arrival_s, k))
    waiting.remove(chosen)
    running.append(second + trace[chosen].service_s)
    waits[chosen] = second - trace[chosen].arrival_s


def rank(job: Job, k: int) -> Rank:
    return Rank(0, job.key, job.arrival_s, f"r{k}")


@LAW
@given(jobs, st.integers(1, 3), st.sampled_from([3.0, FOREVER_S]), st.randoms(use_true_random=False))
def test_a_replay_is_a_simulation_whatever_order_the_ends_come_in(
    trace: list[Job], slots: int, max_wait_s: float, rng: object
) -> None:
    trace = sorted(trace, key=lambda job: job.arrival_s)
    replay = Replay(slots, max_wait_s)
    for k, job in enumerate(trace):
        replay.arrive(k, job.arrival_s)
    order = list(range(len(trace)))
    rng.shuffle(order)  # type: ignore[attr-defined]
    played = [
        one for k in order for one in replay.end(k, trace[k].service_s if trace[k].served else None, rank(trace[k], k))
    ]
    assert {one.key: one.waited_s for one in played} == simulated(trace, slots, max_wait_s)
    assert len(played) == sum(job.served for job in trace)
    assert len(replay) == 0


@LAW
@given(jobs, st.integers(1, 3))
def test_two_orders_are_compared_over_the_same_requests(trace: list[Job], slots: int) -> None:
    trace = sorted(trace, key=lambda job: job.arrival_s)
    comparison = Comparison(FOREVER_S)
    keys = [comparison.arrive(job.arrival_s, slots) for job in trace]
    for k, job in enumerate(trace):
        by_arrival = Rank(0, job.arrival_s, job.arrival_s, f"r{k}")
        comparison.end(keys[k], job.service_s if job.served else None, by_arrival, rank(job, k))
    served = [job for job in trace if job.served]
    assert comparison.requests == len(served)
    assert comparison.live_s == sum(simulated([j._replace(key=0) for j in trace], slots, FOREVER_S).values())
    assert comparison.candidate_s == sum(simulated(trace, slots, FOREVER_S).values())
    waits = comparison.waits()
    assert (waits is None) == (not served)
    if waits is not None:
        assert waits[0].mean_s == pytest.approx(comparison.live_s / len(served))
        assert waits[1].p99_s >= 0


def test_shortest_first_is_found_to_wait_less() -> None:
    comparison = Comparison(FOREVER_S)
    lengths = [50, 5, 40, 1, 30, 2]
    keys = [comparison.arrive(float(k), 1) for k in range(len(lengths))]
    for k, seconds in enumerate(lengths):
        comparison.end(keys[k], seconds, Rank(0, k, k, str(k)), Rank(0, seconds, k, str(k)))
    live, candidate = comparison.waits() or pytest.fail("nothing was compared")
    assert candidate.mean_s < live.mean_s


def test_other_slots_begin_anew_and_unknown_ones_compare_nothing() -> None:
    comparison = Comparison(FOREVER_S)
    nothing = Rank(0, 0, 0, "r")
    assert comparison.arrive(0.0, None) is None
    comparison.end(None, 1.0, nothing, nothing)
    old = comparison.arrive(0.0, 1)
    new = comparison.arrive(1.0, 2)
    comparison.end(old, 5.0, nothing, nothing)
    comparison.end(new, 5.0, nothing, nothing)
    comparison.end(new, 5.0, nothing, nothing)
    assert (comparison.requests, comparison.live_s) == (1, 0.0)


def test_the_candidate_s_choice_is_held_against_who_started(
    ranking_of: Callable[..., Ranking], vector: Callable[[int], Vector]
) -> None:
    ranking = ranking_of(scheduling={"policy": "fcfs", "shadow": {"policy": "sjf"}})
    for k, cap in enumerate((300, 20, 5)):
        ranking.admit(Request(id=f"r{k}", arrival_s=k, features=Features(max_tokens=cap)), vector(k), k)
    for which, agreed in (("r0", 0), ("r1", 0), ("r2", 0)):
        assert ranking.peek(9.0).request.id == which
        ranking.start(which, 9.0)
        assert ranking.beside.agreed == agreed
    assert ranking.beside.choices == 2, "the last one alone was no choice"
    ranking.finish("r0", Outcome(output_tokens=3), 10.0)
    assert ranking.tickets()[0].beside.key > 0


def test_trouble_in_the_candidate_ends_it_and_nothing_else(
    ranking_of: Callable[..., Ranking], monkeypatch: pytest.MonkeyPatch
) -> None:
    ranking = ranking_of(scheduling={"policy": "fcfs", "shadow": {"policy": "mean"}})
    ranking.admit(Request(id="before"), None, 0.0)

    def fails(*_: object) -> float:
        raise OverflowError

    monkeypatch.setattr(ranking.beside._policy, "key", fails)
    ranking.admit(Request(id="r"), None, 0.0)
    assert (ranking.beside.trouble, ranking.beside.active) == ("OverflowError", False)
    assert ranking.start("r", 1.0).phase.value == "running"
    ranking.drop("before", 1.0)
