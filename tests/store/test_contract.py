"""What every store does: the same tests against each implementation."""

import pytest
from store_records import SPACE, record

from sagesched_store.protocol import Health
from sagesched_store.record import Space


def test_the_newest_come_in_order_of_time_as_they_were_written(open_store):
    store = open_store()
    records = [record(number) for number in range(12)]
    store.append(records[6:])
    store.append(records[:6])
    assert store.newest(5) == records[-5:]
    assert store.newest(100) == records
    assert store.newest(0) == []
    assert store.health == Health()


def test_nothing_appended_is_nothing_done(open_store):
    store = open_store()
    store.append([])
    assert (store.count(), store.newest(10)) == (0, [])


def test_a_record_written_twice_is_one_sample(open_store):
    store = open_store()
    store.append([record(1), record(2)])
    store.append([record(2), record(1)])
    assert (store.count(), store.newest(10)) == (2, [record(1), record(2)])


def test_one_id_used_for_two_requests_is_two_samples(open_store):
    """Clients choose ids, and use them again."""
    store = open_store()
    store.append([record(1, request="same"), record(2, request="same"), record(1, request="same", tenant="t")])
    assert store.count() == 3


def test_the_oldest_are_deleted_beyond_the_rows_and_no_other(open_store):
    store = open_store(rows=128)
    for start in range(0, 400, 50):
        store.append([record(number) for number in range(start, start + 50)])
        assert store.count() <= 128 + 128 // 64
        held = min(store.count(), start + 50)
        assert store.newest(500) == [record(number) for number in range(start + 50 - held, start + 50)]
    assert store.count() >= 128


def test_a_late_record_older_than_all_does_not_push_out_a_newer_one(open_store):
    store = open_store(rows=10)
    store.append([record(number) for number in range(10, 20)])
    store.append([record(1)])
    assert store.newest(100) == [record(number) for number in range(10, 20)]


def test_a_deleted_tenant_is_gone_and_nobody_else(open_store):
    store = open_store()
    store.append([record(number, tenant="ab"[number % 2]) for number in range(10)] + [record(20)])
    assert (store.count("a"), store.count("b"), store.count("")) == (5, 5, 1)
    assert store.delete_tenant("a") == 5
    assert store.delete_tenant("a") == store.delete_tenant("never seen") == 0
    assert (store.count("a"), store.count()) == (0, 6)
    assert {one.tenant for one in store.newest(100)} == {"b", ""}
    store.append([record(30, tenant="a")])
    assert store.count("a") == 1


def test_what_finished_before_is_deleted_and_nothing_else(open_store):
    store = open_store()
    store.append([record(number) for number in range(10)])
    assert store.delete_before(record(4).finished_s) == 4
    assert store.delete_before(record(4).finished_s) == 0
    assert store.newest(100) == [record(number) for number in range(4, 10)]


def test_one_tenant_s_flood_costs_no_other_tenant_a_record(open_store):
    store = open_store(rows=64)
    store.append([record(number, tenant="small") for number in range(20)])
    for number in range(100, 400, 100):
        store.append([record(k, tenant="flood") for k in range(number, number + 100)])
    assert store.count("small") == 20
    assert 44 <= store.count("flood") <= 45
    assert store.newest(30, "flood") == [record(number, tenant="flood") for number in range(370, 400)]


def test_the_newest_of_a_tenant_and_of_models(open_store):
    store = open_store()
    made = [record(number, tenant="ab"[number % 2], model="xyz"[number % 3]) for number in range(12)]
    store.append(made)
    assert store.newest(100, "a") == made[::2]
    assert store.newest(2, "a") == made[8::2]
    assert store.newest(100, None, ("x", "z")) == [one for one in made if one.model != "y"]
    assert store.newest(1, "b", ("x",)) == [made[9]]
    assert store.newest(1, "none") == []
    assert store.tenants() == {"a": 6, "b": 6}


def test_every_record_is_in_one_page(open_store):
    store = open_store()
    made = [record(number) for number in range(25)]
    store.append(made)
    found, after = [], None
    while True:
        page = store.page(after, 10)
        assert len(page.records) <= 10
        found += page.records
        if (after := page.after) is None:
            break
    assert sorted(found, key=lambda one: one.finished_s) == made


def test_where_nobody_else_writes_nothing_changes(open_store):
    store = open_store()
    store.append([record(1)])
    assert store.changes(0.0, 10).records == []


def test_a_record_of_another_space_is_refused_whole(open_store):
    store = open_store()
    for wrong in (record(2, space=Space(SPACE.embedder, 5)), record(2, embedder="another")):
        with pytest.raises(ValueError, match="record: its vector"):
            store.append([record(1), wrong])
    assert store.count() == 0


def test_odd_names_come_back_as_they_are(open_store):
    store = open_store()
    odd = [record(n, model=name, tenant=name) for n, name in enumerate(["", "ä/ß", "日本", "a\0b", '"{}\\', "x" * 256])]
    store.append(odd)
    assert store.newest(10) == odd
    assert all(store.count(one.tenant) == 1 for one in odd)


def test_what_was_appended_is_there_when_it_is_opened_again(open_store):
    if not open_store.lasts:
        assert open_store().count() == open_store().count() == 0
        return
    store = open_store()
    store.append([record(number, tenant="ab"[number % 2]) for number in range(6)])
    store.delete_tenant("b")
    store.append([record(9)])
    store.close()
    store.close()
    again = open_store()
    assert again.newest(10) == [record(0, "a"), record(2, "a"), record(4, "a"), record(9)]


def test_embedders_never_mix(open_store):
    spaces = [Space("letters-1", 4), Space("letters-2", 4), Space("letters-1", 5), Space("letters/1", 4)]
    stores = [open_store(space=space) for space in spaces]
    for number, (store, space) in enumerate(zip(stores, spaces, strict=True)):
        store.append([record(number, space=space)])
    for number, (store, space) in enumerate(zip(stores, spaces, strict=True)):
        assert store.newest(10) == [record(number, space=space)]
