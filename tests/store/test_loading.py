"""The window at a start, and who loses what where there is too much: laws over any tenants."""

from hypothesis import given
from hypothesis import strategies as st
from store_records import SPACE, record

from sagesched_store.loading import newest_window
from sagesched_store.memory import MemoryStore
from sagesched_store.protocol import surplus

tenants = st.lists(st.sampled_from("abcdef"), max_size=60)
counts = st.dictionaries(st.text(max_size=3), st.integers(1, 50), max_size=8)


@given(tenants, st.integers(1, 40))
def test_the_window_is_the_newest_and_of_each_tenant_some(of, rows):
    store = MemoryStore(SPACE, 1000)
    store.append([record(number, tenant) for number, tenant in enumerate(of)])
    found = newest_window(store, rows)
    assert len(found) == min(rows, len(of))
    assert [one.finished_s for one in found] == sorted({one.finished_s for one in found})
    share = rows // 2 // max(1, len(set(of)))
    for tenant in set(of):
        own = [one.finished_s for one in found if one.tenant == tenant]
        assert len(own) >= min(share, of.count(tenant))
        assert own == [one.finished_s for one in store.newest(len(own), tenant)], "of its own the newest"
    if len(set(of)) <= 1:
        assert found == store.newest(rows)


@given(counts, st.integers(1, 200))
def test_whoever_has_the_most_loses_first(counts, rows):
    lost = surplus(counts, rows)
    kept = {tenant: count - lost.get(tenant, 0) for tenant, count in counts.items()}
    assert sum(kept.values()) == min(rows, sum(counts.values()))
    assert all(count > 0 for count in lost.values())
    share = rows // max(1, len(counts))
    for tenant, count in counts.items():
        assert kept[tenant] >= min(count, share), "an equal share is everybody's"
        if tenant in lost:
            assert kept[tenant] + 1 >= max(kept.values()), "nobody who lost has less than another who kept more"
