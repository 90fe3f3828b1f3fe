"""The store's own on a real Qdrant server: its collection, who wrote what, and a server that fails."""

import pytest
import real_qdrant
from qdrant_client import models
from store_records import SPACE, record

from sagesched_store.apart import StoreApart
from sagesched_store.collection import INDEXES, Shape, create, spaces
from sagesched_store.connection import connect
from sagesched_store.loading import newest_window
from sagesched_store.place import ServerPlace
from sagesched_store.protocol import StoreError
from sagesched_store.record import Space
from sagesched_store.server import OVERLAP_SECONDS, ServerStore

pytestmark = pytest.mark.qdrant
TEN = [record(number) for number in range(10)]


def reason_of(call):
    with pytest.raises(StoreError) as caught:
        call()
    return caught.value.reason


def test_a_store_never_makes_its_collection_and_has_it_once_it_is_made(collections):
    store = ServerStore(collections.writer(), SPACE, 100)
    for call in (lambda: store.append(TEN), lambda: store.newest(5), store.count, store.tenants):
        assert reason_of(call) == "no-collection"
    assert collections.make() is True
    store.append(TEN)
    assert store.newest(100) == TEN


def test_made_twice_it_is_the_same_and_nothing_is_lost(collections):
    store = collections.store()
    store.append(TEN)
    assert collections.make() is False
    assert store.newest(100) == TEN
    assert spaces(connect(collections.place), collections.place) == [SPACE]


def test_its_vectors_are_quantised_and_on_disk_and_its_indexes_there_before_a_point(collections):
    collections.make()
    found = connect(collections.place).get_collection(collections.name())
    assert found.config.params.vectors.on_disk
    assert found.config.quantization_config.scalar.type == models.ScalarType.INT8
    assert found.points_count == 0
    assert found.payload_schema.keys() == INDEXES.keys()
    assert found.payload_schema["tenant"].params.is_tenant


@pytest.mark.parametrize("schema", [2, None, "1"])
def test_an_unknown_schema_is_refused_and_left_as_it_is(collections, schema):
    client = connect(collections.place)
    size = models.VectorParams(size=SPACE.dimensions, distance=models.Distance.DOT)
    metadata = {"schema": schema, "embedder": SPACE.embedder, "dimensions": SPACE.dimensions}
    client.create_collection(collections.name(), size, metadata=metadata)
    store = ServerStore(collections.writer(), SPACE, 100)
    assert reason_of(lambda: store.append(TEN)) == "schema"
    assert reason_of(collections.make) == "schema"
    assert client.get_collection(collections.name()).points_count == 0


def test_a_collection_of_another_embedder_is_refused(collections):
    client = connect(collections.place)
    size = models.VectorParams(size=SPACE.dimensions, distance=models.Distance.DOT)
    client.create_collection(collections.name(), size, metadata={"schema": 1, "embedder": "x", "dimensions": 4})
    assert reason_of(ServerStore(collections.writer(), SPACE, 100).count) == "schema"


def test_what_others_write_is_read_once_and_one_s_own_never(collections):
    mine, other, third = (collections.store() for _ in range(3))
    mine.append(TEN[:2])
    other.append(TEN[2:6])
    first = mine.changes(0.0, 100)
    assert sorted(one.request for one in first.records) == [one.request for one in TEN[2:6]]
    assert mine.changes(first.until_s, 100).records == []
    third.append(TEN[6:])
    second = mine.changes(first.until_s, 100)
    assert sorted(one.request for one in second.records) == [one.request for one in TEN[6:]]
    assert second.until_s > first.until_s


def test_what_was_loaded_is_not_read_again(collections):
    one, other = collections.store(), collections.store()
    one.append(TEN)
    assert newest_window(other, 100) == TEN
    assert other.changes(0.0, 100).records == []


def test_a_writer_whose_clock_is_behind_is_seen_within_the_overlap(collections):
    collections.make()
    now = 1_800_000_000.0
    reader = ServerStore(collections.writer(), SPACE, 100)
    early = ServerStore(collections.writer(), SPACE, 100, clock=lambda: now - OVERLAP_SECONDS / 2)
    on_time = ServerStore(collections.writer(), SPACE, 100, clock=lambda: now)
    on_time.append(TEN[:5])
    until_s = reader.changes(now - 1, 100).until_s
    early.append(TEN[5:])
    assert len(reader.changes(until_s, 100).records) == 5


def test_of_too_many_a_part_is_read_and_the_rest_counted(collections):
    one, other = collections.store(rows=1000), collections.store(rows=1000)
    one.append([record(number) for number in range(300)])
    seen = other.changes(0.0, 100)
    assert (len(seen.records), seen.skipped) == (100, 200)
    assert 50 < sum(int(one.request, 16) for one in seen.records) / 100 < 250, "not the first, nor the last of them"
    assert other.changes(seen.until_s, 100) == ([], seen.until_s, 0)


def test_two_that_delete_what_is_too_much_delete_it_once(collections):
    one, other = collections.store(rows=64), collections.store(rows=64)
    for number in range(0, 400, 40):
        store = (one, other)[number // 40 % 2]
        store.append([record(k) for k in range(number, number + 40)])
        assert min(number + 40, 64) <= one.count() <= 64 + 1 + 40, number
    assert one.newest(10) == [record(number) for number in range(390, 400)]


def test_a_key_is_needed_and_read_from_its_file_anew(tmp_path, qdrant_with_key):
    key = tmp_path / "key"
    key.write_text("wrong\n")
    place = ServerPlace(url=qdrant_with_key.url, api_key_file=str(key), prefix="k")
    store = ServerStore(place, SPACE, 100)
    assert reason_of(store.count) == "refused"
    key.write_text("secret\n")
    create(connect(place), place, SPACE, Shape())
    assert store.count() == 0
    key.unlink()
    assert reason_of(ServerStore(place, SPACE, 100).count) == "refused"


@pytest.fixture
def qdrant_with_key(qdrant, tmp_path):
    server = real_qdrant.Qdrant(real_qdrant.binary(), tmp_path, QDRANT__SERVICE__API_KEY="secret")
    server.start()
    yield server
    server.kill()


def test_a_server_that_is_gone_is_unreachable_and_back_for_the_next_call(own_qdrant):
    mine = real_qdrant.Collections(own_qdrant.url)
    store = mine.store()
    store.append(TEN[:5])
    own_qdrant.kill()
    for call in (lambda: store.append(TEN[5:]), store.count, lambda: store.changes(0.0, 10)):
        assert reason_of(call) == "unreachable"
    own_qdrant.start()
    store.append(TEN[5:])
    assert store.newest(100) == TEN, "and what had been acknowledged was there after the kill"


def test_a_server_that_hangs_is_waited_for_no_longer_than_said(own_qdrant):
    mine = real_qdrant.Collections(own_qdrant.url)
    mine.make()
    store = ServerStore(ServerPlace(url=own_qdrant.url, prefix=mine.place.prefix, timeout_s=0.5), SPACE, 100)
    own_qdrant.hang()
    assert reason_of(store.count) == "unreachable"


def test_it_is_the_same_in_a_process_of_its_own(collections):
    collections.make()
    other = collections.store()
    with_process = StoreApart(collections.writer(), SPACE, 100)
    with_process.append(TEN[:5])
    other.append([record(20, tenant="t")])
    assert with_process.tenants() == {"": 5, "t": 1}
    assert with_process.changes(0.0, 10).records == [record(20, tenant="t")]
    assert with_process.newest(3, "", (TEN[4].model,))[-1:] == [TEN[4]]
    assert len(with_process.page(None, 100).records) == 6
    assert with_process.delete_before(TEN[5].finished_s) == 5
    assert reason_of(StoreApart(collections.writer(), Space("none", 4), 10).count) == "no-collection"
    with_process.close()
