"""Counts on their way to the process that serves /metrics."""

from hypothesis import given
from hypothesis import strategies as st

from sagesched_vllm.counters import COUNTS, FALLBACK, INVERSIONS, PREEMPTED, SETTINGS, STATES, Counters, take_from

adds = st.lists(st.tuples(st.sampled_from([(INVERSIONS,), (PREEMPTED, "kv"), (PREEMPTED, "slots")]), st.integers(0, 5)))


@given(st.lists(adds))
def test_what_arrives_adds_up_to_what_was_counted(steps: list[list[tuple[tuple[str, ...], int]]]) -> None:
    counters, arrived = Counters(), {}
    for step in steps:
        for series, count in step:
            counters.add(*series, count=count)
        carrier = {"an-adapter": 3}
        counters.put_into(carrier)
        for told in take_from(carrier):
            assert told.value > 0
            arrived[told.series] = arrived.get(told.series, 0) + told.value
        assert carrier == {"an-adapter": 3}, "members of others stay"
    assert arrived == {series: count for series, count in counters.totals.items() if count}
    assert counters.total(PREEMPTED) == sum(n for series, n in arrived.items() if series[0] == PREEMPTED)


def test_states_are_told_each_time() -> None:
    counters = Counters()
    counters.states = {(SETTINGS, "abc", "stable"): 1, (FALLBACK,): 0}
    for _ in range(2):
        carrier: dict[str, int] = {}
        counters.put_into(carrier)
        assert {told.series: told.value for told in take_from(carrier)} == counters.states


def test_names_and_labels_are_fixed() -> None:
    assert not set(COUNTS) & set(STATES)
    assert all(text and isinstance(labels, tuple) for text, labels in (*COUNTS.values(), *STATES.values()))
