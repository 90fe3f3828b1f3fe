"""The ranking as a whole: counts, order, one unit, failing open, learning."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sagesched.gittins import Stopping
from sagesched.history import Group, Vector
from sagesched.lengths import LengthDistribution
from sagesched.policy import POLICIES
from sagesched.ranking import Ranking
from sagesched.request import Features, Outcome, Request
from sagesched.settings import decode
from sagesched.ticket import Phase

DIMENSIONS = 8
MAX_WAIT_S = 40.0
Maker = Callable[[int], Vector]


def embedding_of(seed: int) -> Vector:
    made = np.random.default_rng(seed).normal(size=DIMENSIONS).astype(np.float32)
    return made / np.linalg.norm(made)


def asked(which: str = "r", arrival_s: float = 0.0, **fields: Any) -> Request:
    return Request(id=which, model="m", prompt_tokens=20, arrival_s=arrival_s, **fields)


shadows = st.none() | st.fixed_dictionaries({"policy": st.sampled_from(sorted(POLICIES))})


class AnyCalls(RuleBasedStateMachine):
    """Any sequence of calls, made to two rankings: their states agree with a plain model, and with each other."""

    @initialize(
        policy=st.sampled_from(sorted(POLICIES)),
        stopping=st.sampled_from(Stopping),
        boost=st.sampled_from([0, 0.02, 1]),
        shadow=shadows,
    )
    def begin(self, policy: str, stopping: Stopping, boost: float, shadow: Any) -> None:
        scheduling = {"policy": policy, "boost": boost, "bucketTokens": 50, "maxWaitSeconds": MAX_WAIT_S}
        chosen = decode({"scheduling": scheduling | {"shadow": shadow}, "history": {"windowRows": 12}})
        self.ranking, self.twin = (Ranking(chosen, stopping=stopping, dimensions=DIMENSIONS) for _ in range(2))
        self.settings, self.policy, self.bucket, self.max_wait_s = chosen, policy, 50, MAX_WAIT_S
        self.now, self.made = 0.0, 0
        self.waiting: dict[str, Request] = {}
        self.running: dict[str, int] = {}
        self.generated: dict[str, int] = {}

    def both(self, call: str, *of: Any, **named: Any) -> Any:
        one, other = (getattr(ranking, call)(*of, **named) for ranking in (self.ranking, self.twin))
        if call in ("progress", "finish"):
            assert one == other
        return one

    @rule(
        policy=st.sampled_from(sorted(POLICIES)),
        bucket=st.sampled_from([20, 50]),
        max_wait_s=st.sampled_from([5.0, MAX_WAIT_S]),
        threshold=st.sampled_from([0.5, 0.9]),
        alpha=st.sampled_from([0.0, 3.0]),
        rows=st.integers(3, 15),
        shadow=shadows,
    )
    def other_settings(
        self, policy: str, bucket: int, max_wait_s: float, threshold: float, alpha: float, rows: int, shadow: Any
    ) -> None:
        scheduling = {"policy": policy, "bucketTokens": bucket, "maxWaitSeconds": max_wait_s, "alpha": alpha}
        scheduling |= {"similarityThreshold": threshold, "shadow": shadow}
        held = self.ranking.tickets()
        self.settings = decode({"scheduling": scheduling, "history": {"windowRows": rows}})
        self.both("apply", self.settings)
        self.policy, self.bucket, self.max_wait_s = policy, bucket, max_wait_s
        assert self.ranking.tickets() == held, "all that is held stays held"
        assert len(self.ranking.predictor.window) <= rows

    @rule(count=st.integers(1, 3))
    def predict_what_is_due(self, count: int) -> None:
        due = self.ranking.due_count
        made, _ = (ranking.repredict(count) for ranking in (self.ranking, self.twin))
        assert len(made) <= min(count, due)
        assert self.ranking.due_count <= due - len(made)
        assert all(ticket.phase is Phase.WAITING for ticket in made)

    @rule()
    def the_same_settings(self) -> None:
        before = [ticket.rank for ticket in self.ranking.tickets()]
        self.both("apply", self.settings)
        assert [ticket.rank for ticket in self.ranking.tickets()] == before

    @rule(passed=st.floats(0, 15))
    def time_passes(self, passed: float) -> None:
        self.now += passed

    @rule(
        seed=st.integers(0, 5),
        late=st.floats(0, 3),
        priority=st.integers(-1, 1),
        weight=st.sampled_from([0.5, 1.0, 4.0]),
        cap=st.none() | st.integers(1, 400),
        choices=st.integers(1, 3),
        blind=st.booleans(),
        tenant=st.sampled_from(["", "t"]),
    )
    def admit(
        self, seed: int, late: float, priority: int, weight: float, cap: int, choices: int, blind: bool, tenant: str
    ) -> None:
        self.made += 1
        request = Request(
            id=f"r{self.made}",
            tenant=tenant,
            prompt_tokens=10 * seed,
            arrival_s=max(0.0, self.now - late),
            priority=priority,
            weight=weight,
            features=Features(max_tokens=cap, choices=choices),
        )
        ticket = self.both("admit", request, None if blind else embedding_of(seed), self.now)
        assert ticket.phase is Phase.WAITING
        assert ticket.trouble is None
        self.waiting[request.id] = request
        self.generated[request.id] = 0

    @precondition(lambda self: self.waiting)
    @rule()
    def start_who_goes_next(self) -> None:
        chosen = self.both("peek", self.now).request.id
        assert self.both("start", chosen, self.now).phase is Phase.RUNNING
        del self.waiting[chosen]
        self.running[chosen] = 0

    @precondition(lambda self: self.waiting)
    @rule()
    def put_back_who_could_not_start_after_all(self) -> None:
        ticket = self.both("peek", self.now)
        rank, order = ticket.rank, self.ranking.waiting()
        self.both("start", rank.id, self.now)
        self.both("put_back", rank.id, self.now)
        assert self.ranking.peek(self.now).rank is rank
        assert self.ranking.waiting() == order

    @precondition(lambda self: self.running)
    @rule(data=st.data(), more=st.integers(0, 300))
    def progress(self, data: st.DataObject, more: int) -> None:
        chosen = data.draw(st.sampled_from(sorted(self.running)))
        before = self.generated[chosen]
        self.generated[chosen] += more
        changed = self.both("progress", chosen, self.generated[chosen])
        crossed = before // self.bucket < self.generated[chosen] // self.bucket
        assert changed == (crossed and self.policy != "fcfs")
        assert self.both("remaining_tokens", chosen) > 0

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def requeue(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from(sorted(self.running)))
        ticket = self.both("requeue", chosen, self.now)
        assert ticket.generated_tokens == self.generated[chosen], "what it has attained stays"
        del self.running[chosen]
        self.waiting[chosen] = ticket.request

    @precondition(lambda self: self.running)
    @rule(data=st.data(), more=st.integers(0, 300), censored=st.booleans())
    def finish(self, data: st.DataObject, more: int, censored: bool) -> None:
        chosen = data.draw(st.sampled_from(sorted(self.running)))
        outcome = Outcome(output_tokens=self.generated[chosen] + more, censored=censored)
        judged = self.both("finish", chosen, outcome, self.now)
        assert judged.score is None or sum(judged.score.pit_deciles) == pytest.approx(1)
        del self.running[chosen]

    @precondition(lambda self: self.running or self.waiting)
    @rule(data=st.data(), more=st.integers(0, 300))
    def drop(self, data: st.DataObject, more: int) -> None:
        chosen = data.draw(st.sampled_from(sorted({*self.running, *self.waiting})))
        self.both("drop", chosen, self.now, generated_tokens=self.generated[chosen] + more)
        self.running.pop(chosen, None)
        self.waiting.pop(chosen, None)

    @invariant()
    def counts_are_consistent(self) -> None:
        assert self.ranking.waiting_count == len(self.waiting)
        assert self.ranking.running_count == len(self.running)
        phases = {ticket.request.id: ticket.phase for ticket in self.ranking.tickets()}
        assert phases == dict.fromkeys(self.waiting, Phase.WAITING) | dict.fromkeys(self.running, Phase.RUNNING)

    @invariant()
    def who_goes_next_is_the_smallest_or_the_starving(self) -> None:
        waiting = [ticket for ticket in self.ranking.tickets() if ticket.phase is Phase.WAITING]
        next_one = self.ranking.peek(self.now)
        if not waiting:
            assert next_one is self.ranking.oldest() is None
            return
        smallest = min(waiting, key=lambda t: t.rank)
        oldest = min(waiting, key=lambda t: (t.request.arrival_s, t.request.id))
        starves = self.now - oldest.request.arrival_s > self.max_wait_s
        assert next_one is (oldest if starves else smallest)
        assert self.ranking.oldest() is oldest
        assert self.ranking.is_promoted(next_one, self.now) == (starves and oldest is not smallest)

    @invariant()
    def all_keys_are_in_one_unit(self) -> None:
        for ticket in self.ranking.tickets():
            key = self.ranking._policy.key(ticket.request, ticket.score, self.ranking._unit)
            assert ticket.rank == (ticket.request.priority, key, ticket.request.arrival_s, ticket.request.id)

    @invariant()
    def a_candidate_ranks_what_waits_and_decides_nothing(self) -> None:
        beside = self.ranking.beside
        assert beside.trouble is None
        assert beside.active == (self.settings.scheduling.shadow is not None)
        ranked = beside._order.ranks()
        assert {rank.id for rank in ranked} == (set(self.waiting) if beside.active else set())
        for rank in ranked:
            ticket = self.ranking._tickets[rank.id]
            assert rank is ticket.beside
            if self.settings.scheduling.shadow and self.settings.scheduling.shadow.policy == self.policy:
                assert rank == ticket.rank, "the same policy is the same order"
        assert 0 <= beside.agreed <= beside.choices

    @invariant()
    def the_same_calls_give_the_same_order(self) -> None:
        assert [t.rank for t in self.ranking.tickets()] == [t.rank for t in self.twin.tickets()]
        assert self.ranking.unit == self.twin.unit

    @invariant()
    def everything_can_be_explained(self) -> None:
        for ticket in self.ranking.tickets():
            told = self.ranking.explain(ticket.request.id)
            assert told.phase == ticket.phase.value
            assert (told.ahead is None) == (ticket.phase is Phase.RUNNING)
            assert sum(share for _, share, _ in told.levels) == pytest.approx(1)
            assert 0 < told.index <= told.mean_cost * (1 + 1e-6)
        waiting = [t for t in self.ranking.tickets() if t.phase is Phase.WAITING]
        places = [self.ranking.explain(t.request.id).ahead for t in sorted(waiting, key=lambda t: t.rank)]
        assert places == list(range(len(waiting)))


AnyCalls.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestAnyCalls = AnyCalls.TestCase


def served(ranking: Ranking, which: str, embedding: Vector | None, tokens: int, at: float = 0.0) -> None:
    ranking.admit(asked(which, at), embedding, at)
    ranking.start(which, at)
    ranking.finish(which, Outcome(output_tokens=tokens), at + 1)


@pytest.mark.parametrize(
    "call",
    ["start", "put_back", "requeue", "explain", "remaining_tokens", "drop", "finish", "progress", "refresh"],
)
def test_an_id_that_is_not_held_is_a_key_error(ranking_of: Callable[..., Ranking], vector: Maker, call: str) -> None:
    ranking = ranking_of()
    served(ranking, "gone", vector(0), 10)
    more = {
        "start": (0.0,),
        "put_back": (0.0,),
        "requeue": (0.0,),
        "drop": (0.0,),
        "finish": (Outcome(output_tokens=1), 0.0),
        "progress": (5,),
        "refresh": (5,),
    }.get(call, ())
    for which in ("gone", "never"):
        with pytest.raises(KeyError):
            getattr(ranking, call)(which, *more)
    assert (ranking.waiting_count, ranking.running_count) == (0, 0)


def test_an_id_that_is_held_already_is_refused_and_nothing_changes(ranking_of: Callable[..., Ranking]) -> None:
    ranking = ranking_of()
    held = ranking.admit(asked("r"), None, 0.0)
    with pytest.raises(ValueError, match="id"):
        ranking.admit(asked("r", 9.0), None, 9.0)
    assert ranking.tickets() == [held]
    assert ranking.peek(0.0) is held


def test_what_another_host_predicted_stands_as_it_is(ranking_of: Callable[..., Ranking]) -> None:
    ranking = ranking_of()
    told = LengthDistribution.from_samples([10, 500])
    ticket = ranking.admit(asked(), None, 0.0, told=told)
    assert ticket.prediction.distribution is told
    assert ticket.prediction.source == "told"
    assert ranking.remaining_tokens("r") == told.mean()
    assert ranking.finish("r", Outcome(output_tokens=10), 1.0).score is None, "its levels are not here to compare"


def test_what_runs_cannot_start_again(ranking_of: Callable[..., Ranking]) -> None:
    ranking = ranking_of()
    ranking.admit(asked(), None, 0.0)
    ranking.start("r", 1.0)
    with pytest.raises(KeyError):
        ranking.start("r", 2.0)
    assert ranking.running_count == 1
    assert ranking.tickets()[0].started_s == 1.0


def test_trouble_in_the_predictor_is_a_neutral_rank_with_its_reason(
    ranking_of: Callable[..., Ranking], vector: Maker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranking = ranking_of()
    served(ranking, "before", vector(0), 3000)

    def fails(*_: object) -> None:
        raise MemoryError("too large")

    monkeypatch.setattr(ranking.predictor, "predict", fails)
    ticket = ranking.admit(asked(features=Features(max_tokens=100)), vector(0), 5.0)
    assert ticket.trouble == "MemoryError"
    assert ticket.prediction.source == "prior"
    assert ticket.prediction.distribution.tokens[-1] <= 100
    assert ranking.peek(5.0) is ticket
    ranking.start("r", 5.0)
    ranking.finish("r", Outcome(output_tokens=50), 6.0)
    assert len(ranking.predictor.window) == 1, "an embedding that made trouble is not remembered"


@pytest.mark.parametrize("known", [False, True])
def test_a_vector_of_another_shape_is_trouble_and_never_an_error(
    ranking_of: Callable[..., Ranking], vector: Maker, known: bool
) -> None:
    ranking = ranking_of()
    if known:
        served(ranking, "before", vector(0), 30)
    ticket = ranking.admit(asked(), np.ones(DIMENSIONS + 1, dtype=np.float32), 0.0)
    assert ticket.trouble == "ValueError"
    ranking.start("r", 0.0)
    ranking.finish("r", Outcome(output_tokens=50), 1.0)
    assert len(ranking.predictor.window) == int(known)


def test_what_ends_is_learnt_by_how_it_ended(ranking_of: Callable[..., Ranking], vector: Maker) -> None:
    ranking = ranking_of()
    window = ranking.predictor.window
    served(ranking, "whole", vector(0), 30)
    served(ranking, "empty", vector(0), 0)
    served(ranking, "blind", None, 30)
    ranking.admit(asked("left"), vector(0), 0.0)
    ranking.drop("left", 1.0)
    assert len(window) == 1, "nothing is learnt from no tokens or without an embedding"
    ranking.admit(asked("cut"), vector(0), 0.0)
    ranking.start("cut", 0.0)
    ranking.drop("cut", 1.0, generated_tokens=12)
    rows = window.rows(Group("m", ""))
    assert dict(zip(window.output_tokens[rows].tolist(), window.censored[rows].tolist(), strict=True)) == {
        30.0: False,
        12.0: True,
    }


def test_without_learning_the_window_stays_as_it_was_loaded(ranking_of: Callable[..., Ranking], vector: Maker) -> None:
    ranking = ranking_of(history={"learn": False})
    ranking.learn(asked("elsewhere"), vector(0), Outcome(output_tokens=70))
    served(ranking, "whole", vector(0), 30)
    ranking.admit(asked("cut"), vector(0), 0.0)
    ranking.drop("cut", 1.0, generated_tokens=12)
    window = ranking.predictor.window
    assert window.output_tokens[window.rows(Group("m", ""))].tolist() == [70]


def test_the_window_is_bounded_by_the_settings(ranking_of: Callable[..., Ranking], vector: Maker) -> None:
    ranking = ranking_of(history={"windowRows": 7})
    for k in range(20):
        served(ranking, f"r{k}", vector(k), 10 + k)
    assert len(ranking.predictor.window) == 7


@pytest.mark.parametrize("policy", ["fcfs", "sjf", "mean", "gittins", "sagesched"])
def test_refreshed_it_has_the_rank_with_which_it_would_wait(
    ranking_of: Callable[..., Ranking], vector: Maker, policy: str
) -> None:
    """So that a rule that looks at what runs compares what will be compared once it waits, between boundaries too."""
    ranking = ranking_of(scheduling={"policy": policy, "bucketTokens": 1000})
    for k in range(30):
        served(ranking, f"r{k}", vector(1), 50 * (k + 1), at=float(k))
    ranking.admit(asked("r", 40.0), vector(1), 40.0)
    ranking.start("r", 40.0)
    started = ranking.tickets()[0].rank
    ranking.progress("r", 900)
    assert ranking.tickets()[0].rank is started, "no boundary was crossed"
    refreshed = ranking.refresh("r", 900).rank
    assert ranking.requeue("r", 50.0).rank == refreshed
    assert (refreshed != started) == (policy != "fcfs")


def test_short_prompts_go_before_long_ones_once_learnt(ranking_of: Callable[..., Ranking], vector: Maker) -> None:
    for policy in ("sjf", "mean", "gittins", "sagesched"):
        ranking = ranking_of(scheduling={"policy": policy})
        for k in range(15):
            served(ranking, f"long{k}", vector(1), 2500, at=2.0 * k)
            served(ranking, f"short{k}", vector(2), 20, at=2.0 * k + 1)
        ranking.admit(asked("long", 40.0), vector(1), 40.0)
        ranking.admit(asked("short", 40.0), vector(2), 40.0)
        assert ranking.peek(40.0).request.id == "short", policy


def test_waiting_requests_follow_when_the_unit_moves(ranking_of: Callable[..., Ranking], vector: Maker) -> None:
    """The engine turns out to be a hundred times slower than assumed: what waits already is ranked in the new unit."""
    ranking, now = ranking_of(scheduling={"boost": 0.1}), 0.0
    for k in range(4):
        ranking.admit(asked(f"waits{k}", float(k)), vector(k), float(k))
    before = {t.request.id: t.rank.key for t in ranking.tickets()}
    for k in range(40):
        ranking.admit(asked(f"r{k}", now), vector(9), now)
        ranking.start(f"r{k}", now)
        now += 100.0
        ranking.finish(f"r{k}", Outcome(output_tokens=100), now)
    assert ranking.unit.mean_service_s > 10
    after = {t.request.id: t.rank.key for t in ranking.tickets()}
    assert all(abs(after[which]) > 5 * abs(before[which]) for which in before)


def test_an_explanation_names_neighbours_and_numbers(ranking_of: Callable[..., Ranking], vector: Maker) -> None:
    ranking = ranking_of()
    for k in range(6):
        served(ranking, f"r{k}", vector(3), 100 + k)
    ranking.admit(asked(), vector(3), 9.0)
    waits = ranking.explain("r")
    assert (waits.request_id, waits.phase, waits.policy, waits.ahead) == ("r", "waiting", "sagesched", 0)
    assert sorted(tokens for _, tokens in waits.neighbours) == [100, 101, 102, 103, 104, 105]
    assert {similarity for similarity, _ in waits.neighbours} == {1.0}
    assert list(waits.quantiles.values()) == sorted(waits.quantiles.values())
    ranking.start("r", 10.0)
    ranking.progress("r", 2000)
    runs = ranking.explain("r")
    assert (runs.phase, runs.ahead, runs.generated_tokens) == ("running", None, 2000)
    assert runs.mean_tokens > 0


@pytest.mark.parametrize(("cached", "mean_cost"), [(None, 1250.0), (80, 1090.0), (200, 1050.0)])
def test_what_the_cache_held_is_not_paid_for(
    ranking_of: Callable[..., Ranking], vector: Callable[[int], Vector], cached: int | None, mean_cost: float
) -> None:
    """100 prompt tokens and 10 of output: 1,050 of KV, and two for each prompt token that had to be computed."""
    ranking = ranking_of(scheduling={"alpha": 2})
    for n in range(10):
        ranking.admit(Request(id=str(n), prompt_tokens=50), vector(1), 0.0)
        ranking.start(str(n), 0.0)
        ranking.finish(str(n), Outcome(output_tokens=10, prompt_tokens=100, cached_tokens=cached), 1.0)
    assert ranking.unit.mean_cost == pytest.approx(mean_cost)
