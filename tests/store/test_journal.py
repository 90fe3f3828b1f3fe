"""Laws of the write-ahead log."""

import os
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagesched_store.journal import Journal, frame, scan

LAW = settings(max_examples=150, deadline=None)
entries = st.lists(st.binary(max_size=60), max_size=8)


@LAW
@given(entries)
def test_what_was_framed_is_read_in_order(written):
    found = scan(b"".join(map(frame, written)))
    assert (found.entries, found.damaged) == (written, 0)
    assert found.end == sum(len(frame(entry)) for entry in written)


@LAW
@given(entries, st.data())
def test_a_file_cut_anywhere_keeps_every_whole_entry_and_is_no_damage(written, data):
    whole = b"".join(map(frame, written))
    cut = data.draw(st.integers(0, len(whole)))
    found = scan(whole[:cut])
    ends = [len(b"".join(map(frame, written[: n + 1]))) for n in range(len(written))]
    kept = sum(end <= cut for end in ends)
    assert (found.entries, found.damaged) == (written[:kept], 0)
    assert found.end == ([0, *ends])[kept]


@LAW
@given(st.lists(st.binary(max_size=60), min_size=1, max_size=8), st.data())
def test_damage_costs_the_entries_that_it_touches_and_is_told(written, data):
    whole = bytearray(b"".join(map(frame, written)))
    first = data.draw(st.integers(0, len(whole) - 1))
    last = data.draw(st.integers(first, min(first + 20, len(whole) - 1)))
    for at in range(first, last + 1):
        whole[at] ^= data.draw(st.integers(1, 255))
    untouched, begin = [], 0
    for entry in written:
        end = begin + len(frame(entry))
        if last < begin or first >= end:
            untouched.append(entry)
        begin = end
    found = scan(bytes(whole))
    assert found.entries == untouched
    tail_alone = untouched == written[: len(untouched)]
    assert found.damaged == 1 or (tail_alone and found.damaged == 0), "a length at the end may read as a cut"


@LAW
@given(st.binary(max_size=300))
def test_anything_at_all_can_be_scanned(data):
    assert scan(data).end <= len(data)


def test_entries_outlive_their_journal_and_more_can_follow(tmp_path):
    one = Journal(tmp_path / "journal")
    one.append([b"a", b"b"])
    two = Journal(tmp_path / "journal")  # the first was never closed
    assert (two.recovered, two.damaged) == ([b"a", b"b"], 0)
    two.append([b"c"])
    assert Journal(tmp_path / "journal").recovered == [b"a", b"b", b"c"]
    two.clear()
    assert Journal(tmp_path / "journal").recovered == []


def test_what_follows_a_torn_tail_is_read(tmp_path):
    file = tmp_path / "journal"
    file.write_bytes(frame(b"whole") + frame(b"torn")[:-1])
    Journal(file).append([b"after"])
    again = Journal(file)
    assert (again.recovered, again.damaged) == ([b"whole", b"after"], 0)


def test_a_failed_sync_leaves_nothing_of_the_batch(tmp_path):
    trouble = []

    def sync(handle):
        if trouble:
            raise OSError(5, "Input/output error")
        os.fdatasync(handle)

    journal = Journal(tmp_path / "journal", sync)
    journal.append([b"a"])
    trouble.append(True)
    with pytest.raises(OSError, match="Input"):
        journal.append([b"b", b"c"])
    trouble.clear()
    journal.append([b"d"])
    assert Journal(tmp_path / "journal").recovered == [b"a", b"d"]


def test_every_entry_is_synced_before_append_returns(tmp_path):
    seen = []
    journal = Journal(tmp_path / "journal", lambda handle: seen.append(os.fstat(handle).st_size))
    for size in (1, 1000, random.Random(1).randrange(5000)):
        journal.append([bytes(size)])
        assert seen[-1] == journal.size_bytes
