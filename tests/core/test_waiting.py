"""The waiting order against a sorted list."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sagesched.waiting import Rank, WaitingOrder

MAX_WAIT_S = 50.0
keys = st.integers(-3, 3).map(float)
ranks = st.builds(Rank, st.integers(-1, 1), keys, st.integers(0, 2).map(float), st.sampled_from("abc"))


class AgainstASortedList(RuleBasedStateMachine):
    """Whatever is pushed, pushed anew, removed and peeked at, it is as if a list were sorted each time."""

    @initialize()
    def empty(self) -> None:
        self.order = WaitingOrder(MAX_WAIT_S)
        self.model: dict[str, Rank] = {}
        self.most = 0
        self.ids = itertools.count()

    @rule(priority=st.integers(-1, 1), key=keys, arrival=st.integers(0, 100))
    def push(self, priority: int, key: float, arrival: int) -> None:
        rank = Rank(priority, key, float(arrival), f"r{next(self.ids):04}")
        self.model[rank.id] = rank
        self.order.push(rank)

    @precondition(lambda self: self.model)
    @rule(data=st.data(), key=keys, times=st.sampled_from([1, 2, 100]))
    def push_anew(self, data: st.DataObject, key: float, times: int) -> None:
        chosen = data.draw(st.sampled_from(sorted(self.model)))
        for k in reversed(range(times)):
            self.model[chosen] = self.model[chosen]._replace(key=key + k)
            self.order.push(self.model[chosen])

    @precondition(lambda self: self.model)
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from(sorted(self.model)))
        del self.model[chosen]
        self.order.remove(chosen)
        assert chosen not in self.order

    @precondition(lambda self: self.model)
    @rule(data=st.data(), key=keys)
    def leave_and_come_back(self, data: st.DataObject, key: float) -> None:
        """As a request that is preempted does, with its arrival as it was."""
        chosen = data.draw(st.sampled_from(sorted(self.model)))
        self.order.remove(chosen)
        self.model[chosen] = self.model[chosen]._replace(key=key)
        self.order.push(self.model[chosen])

    @rule(by=st.floats(-2, 2), reverse=st.booleans())
    def push_all(self, by: float, reverse: bool) -> None:
        for one, rank in self.model.items():
            self.model[one] = rank._replace(key=rank.key * (-1 if reverse else 1) + by)
        self.order.push_all(iter(self.model.values()))

    @rule(now=st.integers(0, 200))
    def peek(self, now: int) -> None:
        oldest = min(self.model.values(), key=lambda r: (r.arrival_s, r.id), default=None)
        late = oldest if oldest is not None and now - oldest.arrival_s > MAX_WAIT_S else None
        assert self.order.starving(now) == late
        assert self.order.peek(now) == (late or min(self.model.values(), default=None))

    @invariant()
    def agrees(self) -> None:
        self.most = max(self.most, len(self.model))
        live = sorted(self.model.values())
        assert len(self.order) == len(live)
        assert self.order.ranks() == live
        assert self.order.smallest() == (live[0] if live else None)
        assert self.order.oldest() == min(live, key=lambda r: (r.arrival_s, r.id), default=None)
        for place, rank in enumerate(live):
            assert self.order.ahead(rank) == place
            assert self.order.rank(rank.id) is self.model[rank.id]

    @invariant()
    def is_bounded(self) -> None:
        assert len(self.order._heap) <= 2 * self.most + 64
        assert len(self.order._by_arrival) <= 2 * self.most + 65


AgainstASortedList.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestAgainstASortedList = AgainstASortedList.TestCase


@settings(max_examples=100, deadline=None)
@given(ranks, ranks, ranks)
def test_the_order_is_total_and_transitive(a: Rank, b: Rank, c: Rank) -> None:
    assert (a < b) + (b < a) + (a == b) == 1
    if a < b and b < c:
        assert a < c


def test_class_then_key_then_arrival_then_id() -> None:
    ascending = [
        Rank(-1, 9.0, 9.0, "z"),
        Rank(0, 1.0, 9.0, "z"),
        Rank(0, 2.0, 1.0, "z"),
        Rank(0, 2.0, 2.0, "a"),
        Rank(0, 2.0, 2.0, "b"),
    ]
    shuffled = [ascending[k] for k in (3, 0, 4, 2, 1)]
    assert sorted(shuffled) == ascending


def test_memory_follows_what_waits_now_however_much_went_through() -> None:
    order = WaitingOrder(MAX_WAIT_S)
    for k in range(5000):
        order.push(Rank(0, float(-k), float(k), str(k)))
        order.push(Rank(0, float(k), float(k), str(k)))
        if k >= 5:
            order.remove(str(k - 5))
        assert len(order._heap) <= 2 * 6 + 65
        assert len(order._by_arrival) <= 2 * 6 + 65


def test_what_is_not_there_cannot_be_removed() -> None:
    order = WaitingOrder(MAX_WAIT_S)
    order.push(Rank(0, 0.0, 0.0, "a"))
    order.remove("a")
    for call in (order.remove, order.rank):
        with pytest.raises(KeyError):
            call("a")
    assert order.peek(1e9) is None


def test_at_the_bound_a_request_does_not_starve_yet() -> None:
    order = WaitingOrder(MAX_WAIT_S)
    order.push(Rank(5, 9.0, 0.0, "old"))
    order.push(Rank(-5, 0.0, 10.0, "small"))
    assert order.peek(MAX_WAIT_S).id == "small"
    assert order.peek(MAX_WAIT_S + 0.001).id == "old", "whatever its class"
