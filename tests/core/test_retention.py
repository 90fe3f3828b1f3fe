"""Laws of what gives way in a full window: nobody pushes another out of its part, and no prompt fills it."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sagesched.history import Group, HistoryWindow
from sagesched.retention import LEAST_ALIKE, REMEMBERED, Retention

steps = st.lists(st.tuples(st.sampled_from("abcde"), st.integers(0, 3)), max_size=250)

learnt = st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("mn"), st.integers(0, 5)), max_size=60)


class Model:
    """What stands in each row, by the retention's own word."""

    def __init__(self, capacity: int, most_alike: int) -> None:
        self.retention = Retention(capacity)
        self.retention.most_alike = most_alike
        self.rows: dict[int, tuple[str, int]] = {}

    def learn(self, tenant: str, prompt: int) -> None:
        row = self.retention.place(tenant, hash((tenant, prompt)))
        if row is not None:
            assert row <= len(self.rows)
            self.rows[row] = (tenant, prompt)

    def counts(self) -> Counter[str]:
        return Counter(tenant for tenant, _ in self.rows.values())


@given(st.integers(1, 40), st.integers(1, 12), steps)
def test_it_is_bounded_and_no_tenant_loses_its_part(capacity: int, most_alike: int, of: list[tuple[str, int]]) -> None:
    model = Model(capacity, most_alike)
    for tenant, prompt in of:
        before, guaranteed = model.counts(), model.retention.guaranteed()
        known = tenant in before
        model.learn(tenant, prompt)
        after = model.counts()
        assert len(model.rows) == len(model.retention) <= capacity
        part = guaranteed if known else min(guaranteed, model.retention.guaranteed())
        for other in before.keys() - {tenant}:
            assert after[other] >= min(before[other], part), "what another learns costs nobody its part"
        assert after[tenant] >= min(before[tenant], 1)
        assert max(Counter(model.rows.values()).values()) <= most_alike
    assert sorted(model.retention.by_age()) == list(range(len(model.rows)))


def test_a_flood_of_one_tenant_leaves_the_others_their_part() -> None:
    model = Model(100, 1000)
    for number in range(30):
        model.learn("small", number)
    for number in range(5000):
        model.learn("flood", number)
    assert model.counts() == {"small": 25, "flood": 75}
    assert {prompt for tenant, prompt in model.rows.values() if tenant == "small"} == set(range(5, 30)), "its newest"
    assert {prompt for tenant, prompt in model.rows.values() if tenant == "flood"} == set(range(4925, 5000))


def test_one_who_was_pushed_back_to_its_part_gets_more_room_when_it_needs_it() -> None:
    model = Model(100, 1000)
    for number in range(500):
        model.learn("one", number)
    for number in range(500):
        model.learn("two", number)
    assert model.counts() == {"one": 25, "two": 75}
    for number in range(500, 1000):
        model.learn("one", number)
    assert model.counts() == {"one": 75, "two": 25}


def test_a_repeated_prompt_is_a_sample_of_all_its_outcomes_and_none_stays_for_ever() -> None:
    """Which were let in, by their turn: as many late ones as early ones, and no more than a few are old."""
    retention = Retention(1000)
    outcome: dict[int, int] = {}
    for turn in range(10_000):
        row = retention.place("t", 7)
        if row is not None:
            outcome[row] = turn
    assert len(outcome) == LEAST_ALIKE == len(retention)
    ages = 10_000 - np.array(list(outcome.values()))
    memory = REMEMBERED * LEAST_ALIKE
    assert 0.5 * memory < ages.mean() < 2 * memory, "each is replaced after so many, at random"
    assert ages.max() < 12 * memory


def test_memory_is_bounded_whatever_comes() -> None:
    retention = Retention(50)
    retention.most_alike = 3
    for turn in range(20_000):
        retention.place(f"t{turn % 7 if turn % 3 else turn}", turn % 11)
    queued = len(retention._queue) + sum(len(tenant.aside) for tenant in retention._tenants.values())
    assert queued <= 2 * 50 + 64 + 64 * len(retention._tenants) + 2 * 50
    assert len(retention._tenants) <= 50 >= len(retention._alike)


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("mn"), st.integers(0, 5)), max_size=60),
    st.integers(1, 30),
)
def test_a_forgotten_tenant_is_gone_and_no_one_else(of: list[tuple[str, str, int]], capacity: int) -> None:
    window = HistoryWindow(capacity, 4)
    rng = np.random.default_rng(1)
    vectors = rng.normal(size=(6, 4)).astype(np.float32)
    for number, (tenant, model, which) in enumerate(of):
        window.append(Group(model, tenant), vectors[which], prompt_tokens=1, output_tokens=number + 1)
    groups = {Group(model, tenant) for tenant, model, _ in of}
    held = {group: sorted(window.output_tokens[window.rows(group)].tolist()) for group in groups}
    gone = sum(len(lengths) for group, lengths in held.items() if group.tenant == "a")
    assert window.forget("a") == gone
    assert len(window) == sum(map(len, held.values())) - gone
    for group, lengths in held.items():
        wanted = [] if group.tenant == "a" else lengths
        assert sorted(window.output_tokens[window.rows(group)].tolist()) == wanted
        near = window.nearest(group, vectors[0], 50, -1.0)
        assert sorted(near.output_tokens.tolist()) == wanted
    window.append(Group("m", "a"), vectors[0], prompt_tokens=1, output_tokens=9)
    assert window.count(Group("m", "a")) == 1
