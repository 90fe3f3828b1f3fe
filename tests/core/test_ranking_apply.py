"""Other settings while requests wait: the order is that of a ranking that always had them."""

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sagesched.calibration import Unit
from sagesched.gittins import Stopping
from sagesched.history import Vector
from sagesched.policy import POLICIES
from sagesched.ranking import Ranking
from sagesched.request import Features, Outcome, Request
from sagesched.settings import Settings, class_of, decode
from sagesched.ticket import Phase

DIMENSIONS = 8
LAW = settings(max_examples=60, deadline=None)
Maker = Callable[[int], Vector]
Asked = list[tuple[int, int, int | None, str]]

classes = st.lists(
    st.builds(
        lambda name, priority, weight: {"name": name, "priority": priority, "weight": weight},
        st.sampled_from(["default", "batch", "chat"]),
        st.integers(-1, 1),
        st.sampled_from([0.5, 1.0, 4.0]),
    ),
    max_size=3,
    unique_by=lambda one: one["name"],
)
documents = st.builds(
    lambda rows, **scheduling: {"scheduling": scheduling, "history": {"windowRows": rows}},
    rows=st.integers(2, 20),
    policy=st.sampled_from(sorted(POLICIES)),
    bucketTokens=st.sampled_from([10, 200]),
    similarityThreshold=st.sampled_from([-1.0, 0.5, 1.0]),
    neighbours=st.integers(1, 5),
    boost=st.sampled_from([0, 0.02, 1]),
    alpha=st.sampled_from([0.0, 5.0]),
    maxWaitSeconds=st.sampled_from([1.0, 50.0]),
    classes=classes,
)
asked = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.integers(0, 60),
        st.none() | st.integers(1, 400),
        st.sampled_from(["default", "batch", "chat", "gone"]),
    ),
    min_size=1,
    max_size=12,
)
learnt = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 900)), max_size=25)


def request(k: int, arrival_s: int, cap: int | None, name: str, by: Settings) -> Request:
    """As a host makes it: in the class that the settings of now have under that name."""
    one = class_of(by.scheduling, name)
    return Request(
        id=f"r{k}",
        prompt_tokens=10 * k,
        arrival_s=arrival_s,
        class_name=one.name,
        priority=one.priority,
        weight=one.weight,
        features=Features(max_tokens=cap),
    )


def near(seed: int, k: int) -> Vector:
    """The k-th of many unit vectors near the seed's, so that no two records are equally similar to a prompt."""
    made = (
        np.random.default_rng(seed).normal(size=DIMENSIONS) + np.random.default_rng(100 + k).normal(size=DIMENSIONS) / 5
    )
    return (made / np.linalg.norm(made)).astype(np.float32)


def fed(by: Settings, stopping: Stopping, history: list[tuple[int, int]], of: Asked) -> Ranking:
    """A ranking that has learnt the history and holds the requests, some without an embedding, the first running."""
    ranking = Ranking(by, stopping=stopping, dimensions=DIMENSIONS)
    for k, (seed, tokens) in enumerate(history):
        ranking.learn(Request(id="h", prompt_tokens=10), near(seed, k), Outcome(output_tokens=tokens))
    for k, (seed, arrival_s, cap, name) in enumerate(of):
        ranking.admit(request(k, arrival_s, cap, name, by), near(seed, 50 + k) if seed else None, 60.0)
    first = ranking.tickets()[0].request.id
    ranking.start(first, 60.0)
    ranking.progress(first, 37)
    return ranking


def settled(ranking: Ranking) -> list[Any]:
    """Its order, told in one unit of time, once all that is due was predicted anew."""
    while ranking.due_count:
        ranking.repredict(2)
    ranking._rank_all(Unit(mean_cost=1000.0, mean_service_s=2.0, token_s=0.01))
    return sorted(ticket.rank for ticket in ranking.tickets() if ticket.phase is Phase.WAITING)


@LAW
@given(documents, documents, st.sampled_from(Stopping), learnt, asked)
def test_the_order_is_that_of_a_ranking_that_always_had_the_settings(
    before: Any, after: Any, stopping: Stopping, history: list[tuple[int, int]], of: Asked
) -> None:
    before["history"]["windowRows"] = 25
    for document in (before, after):
        document["scheduling"]["classes"] = [
            c for c in document["scheduling"]["classes"] if c["name"] in ("batch", "chat")
        ]
    old, new = decode(before), decode(after)
    # A class that the settings of the time did not list is the default one from then on.
    listed = {c.name for c in old.scheduling.classes}
    of = [(seed, at, cap, name if name in listed else "default") for seed, at, cap, name in of]
    changed, fresh = (fed(by, stopping, history, of) for by in (old, new))
    held = [ticket.request.id for ticket in changed.tickets()]
    changed.apply(new)
    assert [ticket.request.id for ticket in changed.tickets()] == held
    assert settled(changed) == settled(fresh)
    for mine, its in zip(changed.tickets(), fresh.tickets(), strict=True):
        assert mine.request == its.request
        assert (mine.phase, mine.generated_tokens) == (its.phase, its.generated_tokens)
    for now_s in (60.0, 61.5, 200.0):
        mine, its = changed.peek(now_s), fresh.peek(now_s)
        assert (mine and mine.rank) == (its and its.rank)


@LAW
@given(documents, documents, learnt, asked)
def test_there_and_back_is_the_order_of_before(
    before: Any, other: Any, history: list[tuple[int, int]], of: Asked
) -> None:
    """Where no record was forgotten and every class is listed in both."""
    every = [{"name": name, "priority": k, "weight": k + 1} for k, name in enumerate(("default", "batch", "chat"))]
    before["scheduling"]["classes"] = every
    other["scheduling"]["classes"] = [c | {"priority": -c["priority"]} for c in every]
    for document in (before, other):
        document["history"]["windowRows"] = 25
    there, back = decode(other), decode(before)
    ranking = fed(back, Stopping.NEVER, history, of)
    order = settled(ranking)
    ranking.apply(there)
    ranking.apply(back)
    assert settled(ranking) == order


def test_the_order_is_whole_before_what_is_due_was_predicted(ranking_of: Callable[..., Ranking], vector: Maker) -> None:
    ranking = ranking_of(scheduling={"policy": "fcfs", "similarityThreshold": 1.0})
    for k in range(10):
        ranking.admit(Request(id=f"r{k}", arrival_s=k, prompt_tokens=k), vector(k), 10.0)
    ranking.apply(decode({"scheduling": {"policy": "sjf", "similarityThreshold": -1.0}}))
    assert ranking.due_count == 10
    ranking.start("r3", 11.0)
    ranking.drop("r4", 11.0)
    assert len(ranking.repredict(3)) == 3
    assert {t.request.id for t in ranking.tickets()} == {f"r{k}" for k in range(10) if k != 4}
    assert len(ranking.repredict(100)) == 5, "what runs or has left is not predicted anew"
    assert ranking.due_count == 0


def test_a_class_that_is_listed_no_more_is_the_default_one(ranking_of: Callable[..., Ranking]) -> None:
    ranking = ranking_of(scheduling={"policy": "fcfs", "classes": [{"name": "batch", "priority": 9, "weight": 2}]})
    ranking.admit(Request(id="b", class_name="batch", priority=9, weight=2, arrival_s=0.0), None, 0.0)
    ranking.admit(Request(id="d", arrival_s=1.0), None, 1.0)
    assert ranking.peek(1.0).request.id == "d"
    ranking.apply(decode({"scheduling": {"policy": "fcfs"}}))
    assert ranking.peek(1.0).request.id == "b"
    kept = ranking.peek(1.0).request
    assert (kept.class_name, kept.priority, kept.weight) == ("default", 0, 1.0)


def test_another_measure_of_cost_begins_with_the_costs_that_are_predicted(
    ranking_of: Callable[..., Ranking], vector: Maker
) -> None:
    """Costs served under the old alpha are in another measure: no unit mixes the two."""
    ranking = ranking_of()
    for k in range(8):
        ranking.admit(Request(id=f"s{k}", prompt_tokens=100), vector(0), k)
        ranking.start(f"s{k}", k)
        ranking.finish(f"s{k}", Outcome(output_tokens=10), k + 1)
    ranking.admit(Request(id="waits", prompt_tokens=100), vector(0), 9.0)
    ranking.apply(decode({"scheduling": {"alpha": 1000.0}, "history": {"windowRows": 50}}))
    fresh = ranking_of(scheduling={"alpha": 1000.0})
    for _ in range(8):
        fresh.learn(Request(id="h", prompt_tokens=100), vector(0), Outcome(output_tokens=10))
    fresh.admit(Request(id="waits", prompt_tokens=100), vector(0), 9.0)
    assert ranking.unit.mean_cost == fresh.unit.mean_cost
