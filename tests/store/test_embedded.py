"""The embedded store's own: its folder, its journal, and what it does about damage and a full disk."""

import json
import os
import random
import shutil

import pytest
from store_records import SPACE, record

from sagesched.request import Features, Outcome, Request
from sagesched_store.embedded import EmbeddedStore
from sagesched_store.protocol import StoreError
from sagesched_store.record import Space, record_of

TEN = [record(number, tenant="ab"[number % 2]) for number in range(10)]


def opened(root, rows=100, **options):
    return EmbeddedStore(root, SPACE, rows, patience_s=0.0, **options)


def killed(root, into, store):
    """The folder as a process leaves it that was killed now, under another path."""
    shutil.copytree(root, into)
    store.close()
    return into


def test_a_second_process_is_told_who_holds_the_folder(tmp_path):
    store = opened(tmp_path)
    with pytest.raises(StoreError, match=f"another process \\({os.getpid()}\\)") as caught:
        opened(tmp_path)
    assert caught.value.reason == "locked"
    store.append(TEN)
    store.close()
    assert opened(tmp_path).count() == 10


def test_an_unknown_schema_is_refused_and_left_as_it_is(tmp_path):
    opened(tmp_path).close()
    manifest = tmp_path / SPACE.slug / "store.json"
    newer = json.dumps(json.loads(manifest.read_text()) | {"schema": 2})
    manifest.write_text(newer)
    with pytest.raises(StoreError, match="schema 2, this version reads 1 only; use another path") as caught:
        opened(tmp_path)
    assert caught.value.reason == "schema"
    assert manifest.read_text() == newer


def test_a_folder_of_another_embedder_is_refused(tmp_path):
    opened(tmp_path).close()
    (tmp_path / SPACE.slug).rename(tmp_path / Space("another", 4).slug)
    with pytest.raises(StoreError, match="letters-1"):
        EmbeddedStore(tmp_path, Space("another", 4), 10)


def test_a_path_that_is_no_folder_is_unwritable(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError) as caught:
        opened(tmp_path / "file")
    assert caught.value.reason == "unwritable"


def test_what_was_never_flushed_comes_from_the_journal(tmp_path):
    store = opened(tmp_path / "a")
    store.append(TEN)
    assert opened(killed(tmp_path / "a", tmp_path / "b", store)).newest(100) == TEN


def test_a_deletion_outlives_the_process_as_a_record_does(tmp_path, monkeypatch):
    store = opened(tmp_path / "a")
    store.append(TEN)
    monkeypatch.setattr(store, "_checkpoint", lambda: None)  # killed before it came so far
    store.delete_tenant("a")
    again = opened(killed(tmp_path / "a", tmp_path / "b", store))
    assert again.newest(100) == TEN[1::2]


def test_the_journal_begins_anew_once_the_shard_has_everything(tmp_path):
    store = opened(tmp_path / "a", checkpoint_bytes=2000)
    journal = tmp_path / "a" / SPACE.slug / "journal"
    largest = 0
    for number in range(60):
        store.append([record(number)])
        largest = max(largest, journal.stat().st_size)
    assert 0 < largest < 2000
    assert opened(killed(tmp_path / "a", tmp_path / "b", store)).count() == 60


def test_damage_in_the_journal_costs_the_records_it_touches_and_is_told(tmp_path):
    store = opened(tmp_path / "a")
    store.append(TEN)
    killed(tmp_path / "a", tmp_path / "b", store)
    journal = tmp_path / "b" / SPACE.slug / "journal"
    data = bytearray(journal.read_bytes())
    data[len(data) // 2] ^= 0xFF
    journal.write_bytes(data)
    again = opened(tmp_path / "b")
    assert again.health.damaged_records == 1
    left = again.newest(100)
    assert len(left) == 9
    assert [one for one in TEN if one in left] == left
    again.close()
    assert opened(tmp_path / "b").health.damaged_records == 0, "it is told once, then the journal is whole"


def test_a_torn_tail_is_repaired_in_silence(tmp_path):
    store = opened(tmp_path / "a")
    store.append(TEN)
    killed(tmp_path / "a", tmp_path / "b", store)
    journal = tmp_path / "b" / SPACE.slug / "journal"
    os.truncate(journal, journal.stat().st_size - 1)
    again = opened(tmp_path / "b")
    assert (again.newest(100), again.health.damaged_records) == (TEN[:9], 0)
    again.append(TEN[9:])
    again.close()
    assert opened(tmp_path / "b").newest(100) == TEN


def test_a_shard_that_cannot_be_opened_is_set_aside_and_the_journal_kept(tmp_path):
    store = opened(tmp_path)
    store.append(TEN[:5])
    store.close()
    for round_ in (5, 6):
        for file in (tmp_path / SPACE.slug / "edge").glob("segments/*/segment.json"):
            file.write_bytes(b"\0" * 40)
        (tmp_path / SPACE.slug / "edge" / "mark").write_text(str(round_))
        again = opened(tmp_path)
        assert again.health.set_aside == str(tmp_path / SPACE.slug / "damaged")
        assert (tmp_path / SPACE.slug / "damaged" / "mark").read_text() == str(round_), "one is kept, the last"
        assert again.count() == 0
        again.append([TEN[round_]])
        assert again.newest(10) == [TEN[round_]]
        again.close()
    last = opened(tmp_path)
    assert last.health.set_aside == ""
    last.delete_tenant("a")
    assert not (tmp_path / SPACE.slug / "damaged").exists(), "what is set aside may hold the tenant's records"


def test_a_vector_that_changed_on_the_disk_is_left_out_and_told(tmp_path):
    store = opened(tmp_path)
    store.append(TEN)
    store.close()
    [vectors] = (tmp_path / SPACE.slug / "edge").glob("segments/*/vector_storage/vectors/chunk_0.mmap")
    data = bytearray(vectors.read_bytes())
    at = data.index(TEN[4].embedding)
    data[at + 1] ^= 0x55
    vectors.write_bytes(data)
    again = opened(tmp_path)
    assert again.newest(100) == TEN[:4] + TEN[5:]
    assert again.health.damaged_records == 1


def test_a_full_disk_refuses_the_batch_and_keeps_what_there_is(tmp_path):
    store = opened(tmp_path / "a", min_free_bytes=0)
    store.append(TEN[:5])
    store._min_free_bytes = 1 << 62
    with pytest.raises(StoreError) as caught:
        store.append(TEN[5:])
    assert caught.value.reason == "disk-full"
    assert store.newest(100) == TEN[:5]
    store._min_free_bytes = 0
    store.append(TEN[5:])
    assert store.newest(100) == TEN


def test_a_closed_store_says_so(tmp_path):
    store = opened(tmp_path)
    store.close()
    for call in (lambda: store.append(TEN), lambda: store.newest(1), store.count, lambda: store.delete_tenant("a")):
        with pytest.raises(StoreError) as caught:
            call()
        assert caught.value.reason == "closed"


def test_fractions_come_back_as_they_were(tmp_path):
    rng = random.Random(1)
    asked = [None, 1, 7.5, 1e12, *(rng.uniform(0.001, 1e6) for _ in range(2000))]
    written = [
        record_of(
            Request(id=str(number), features=Features(asked_number=tokens)),
            TEN[0].embedding,
            SPACE.embedder,
            Outcome(output_tokens=1),
            rng.uniform(1.6e9, 4e9),
        )
        for number, tokens in enumerate(asked)
    ]
    store = opened(tmp_path, rows=10_000)
    store.append(written)
    assert store.newest(10_000) == sorted(written, key=lambda one: one.finished_s)


def test_only_its_owner_reads_the_folder(tmp_path):
    opened(tmp_path / "a").close()
    assert (tmp_path / "a" / SPACE.slug).stat().st_mode & 0o077 == 0


def test_deleted_rows_give_their_room_back(quick_path):
    """Eight times as many records as rows take the room of a few times the rows."""

    def size():
        files = [path for path in quick_path.rglob("*") if path.is_file()]
        return sum(path.stat().st_blocks * 512 for path in files)

    space = Space("wide", 64)
    store = EmbeddedStore(quick_path, space, 1000, checkpoint_bytes=1 << 18)
    sizes = []
    for start in range(0, 6000, 400):
        store.append([record(number, space=space) for number in range(start, start + 400)])
        sizes.append(size())
    assert max(sizes[10:]) < 2 * max(sizes[:10])
    store.close()
