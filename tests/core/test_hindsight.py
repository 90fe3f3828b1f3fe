"""The estimate of another order, held against queues that are played in full."""

import heapq

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagesched import hindsight
from sagesched.hindsight import Hindsight
from sagesched.waiting import Rank

JOBS = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 20)), min_size=1, max_size=40)
"""Gap to the one before, and service time: whole numbers, so that times are exact."""
SLOTS = st.integers(1, 4)


def arrivals(jobs):
    at, out = 0, []
    for k, (gap, service) in enumerate(jobs):
        at += gap
        out.append((float(at), f"j{k:03}", float(service)))
    return out


def play(jobs, slots, key):
    """Starts and ends in the order of `key(arrival, id, service)`, step by step."""
    waiting, ends, starts = [], [], {}
    todo = list(jobs)
    now = 0.0
    while todo or waiting:
        while ends and ends[0] <= now:
            heapq.heappop(ends)
        more = True
        while more:
            while waiting and len(ends) < slots:
                _, (_, which, service) = heapq.heappop(waiting)
                starts[which] = now
                heapq.heappush(ends, now + service)
            more = bool(todo) and todo[0][0] <= now
            if more:  # one after the other: who comes first at one time starts first where there is a slot
                job = todo.pop(0)
                heapq.heappush(waiting, (key(*job), job))
        coming = ([ends[0]] if ends else []) + ([todo[0][0]] if todo else [])
        now = min(coming) if coming else now
    return starts


def number(which):
    return int(which[1:])


def told(jobs, slots, key, until=None):
    """What Hindsight says of jobs that were served first come, first served."""
    starts = play(jobs, slots, lambda arrival, which, service: (arrival, which))
    events = [(arrival, 1, which, service) for arrival, which, service in jobs]
    events += [(starts[which] + service, 0, which, service) for _, which, service in jobs]
    seen, out = Hindsight(slots, 1e9), {}
    by_id = {which: (arrival, which, service) for arrival, which, service in jobs}
    for now, comes, which, _ in sorted(events)[:until]:
        if comes:
            seen.arrive(number(which), now)
        else:
            rank = Rank(0, float(key(*by_id[which])), by_id[which][0], which)
            out |= {waits.id: waits for waits in seen.end(number(which), now, rank)}
    return starts, out


@given(JOBS, SLOTS)
def test_in_the_order_of_arrival_nothing_is_saved(jobs, slots):
    jobs = arrivals(jobs)
    starts, out = told(jobs, slots, lambda arrival, which, service: arrival)
    assert {which: (w.waited_s, w.saved_s) for which, w in out.items()} == {
        which: (starts[which] - arrival, 0.0) for arrival, which, _ in jobs
    }


@given(JOBS, SLOTS)
def test_another_order_is_played_as_it_would_have_been(jobs, slots):
    jobs = arrivals(jobs)
    _, out = told(jobs, slots, lambda arrival, which, service: service)
    other = play(jobs, slots, lambda arrival, which, service: (service, arrival, which))
    assert {which: w.would_have_waited_s for which, w in out.items()} == {
        which: other[which] - arrival for arrival, which, _ in jobs
    }


@given(st.lists(st.integers(1, 20), min_size=2, max_size=20))
def test_the_shortest_first_saves_of_what_came_at_once_on_one_slot(services):
    _, out = told(arrivals([(0, 0), *((0, s) for s in services)]), 1, lambda arrival, which, service: service)
    assert sum(w.saved_s for w in out.values()) >= 0


def rank_of(which):
    return Rank(0, 0.0, 0.0, which)


def test_nothing_is_said_before_all_that_came_earlier_has_ended():
    seen = Hindsight(2, 1e9)
    for key in (1, 2):
        seen.arrive(key, 0.0)
    assert seen.end(2, 1.0, rank_of("short")) == []
    assert [w.id for w in seen.end(1, 9.0, rank_of("long"))] == ["long", "short"]


def test_who_left_before_its_turn_is_left_out():
    seen = Hindsight(1, 1e9)
    for key in (1, 2, 3):
        seen.arrive(key, 0.0)
    assert seen.end(2, 1.0, rank_of("leaves")) == []
    told_of = seen.end(1, 4.0, rank_of("a")) + seen.end(3, 6.0, rank_of("b"))
    assert [(w.id, w.waited_s) for w in told_of] == [("a", 0.0), ("b", 4.0)]


def test_who_was_served_with_no_known_rank_is_left_out():
    seen = Hindsight(1, 1e9)
    for key in (1, 2):
        seen.arrive(key, 0.0)
    assert seen.end(1, 3.0, None) == []
    assert [(w.id, w.waited_s, w.saved_s) for w in seen.end(2, 5.0, rank_of("b"))] == [("b", 3.0, 3.0)]


def test_an_end_of_whom_nobody_knows_and_a_second_one_are_let_pass():
    seen = Hindsight(1, 1e9)
    seen.arrive(1, 0.0)
    assert seen.end(2, 1.0, rank_of("b")) == []
    assert len(seen.end(1, 1.0, rank_of("a"))) == 1
    assert seen.end(1, 2.0, rank_of("a")) == []
    assert len(seen) == 0


def test_what_is_held_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hindsight, "MAX_HELD", 10)
    seen = Hindsight(1, 1e9)
    for key in range(25):
        seen.arrive(key, float(key))
    assert (seen.forgotten, len(seen)) == (20, 5)
