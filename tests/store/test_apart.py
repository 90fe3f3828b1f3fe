"""The store in a process of its own: that process and this one may each end at any moment."""

import os
import signal
import threading
import time

import pytest
from store_records import SPACE, record

from sagesched_store import apart
from sagesched_store.apart import StoreApart
from sagesched_store.embedded import EmbeddedStore
from sagesched_store.place import FolderPlace
from sagesched_store.protocol import StoreError

TEN = [record(number) for number in range(10)]


@pytest.fixture
def store(tmp_path):
    made = StoreApart(FolderPlace(str(tmp_path)), SPACE, 100)
    yield made
    made.close()


def test_the_store_s_own_errors_come_over_with_their_reason(store, tmp_path):
    with pytest.raises(StoreError, match="held by another process") as caught:
        EmbeddedStore(tmp_path, SPACE, 10, patience_s=0.0)
    assert caught.value.reason == "locked"
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError) as caught:
        StoreApart(FolderPlace(str(tmp_path / "file")), SPACE, 100)
    assert caught.value.reason == "unwritable"


def test_its_process_s_death_is_an_error_and_no_record_is_lost(store, tmp_path):
    store.append(TEN)
    store.process.kill()
    for call in (lambda: store.append(TEN), store.count):
        with pytest.raises(StoreError) as caught:
            call()
        assert caught.value.reason in ("died", "closed")
    again = StoreApart(FolderPlace(str(tmp_path)), SPACE, 100)
    assert again.newest(100) == TEN
    again.close()


def test_a_process_that_hangs_is_ended(store, monkeypatch):
    monkeypatch.setattr(apart, "ANSWER_SECONDS", 0.2)
    store.process.send_signal(signal.SIGSTOP)
    with pytest.raises(StoreError) as caught:
        store.append(TEN)
    assert caught.value.reason == "timeout"
    assert store.process.poll() is not None


def test_signals_to_the_host_s_group_are_the_host_s(store):
    for number in (signal.SIGINT, signal.SIGTERM):
        store.process.send_signal(number)
    store.append(TEN)
    assert store.count() == 10
    store.close()
    assert store.process.returncode == 0


def test_it_ends_when_its_host_is_gone(store, tmp_path):
    store.append(TEN)
    store.process.stdin.close()  # as the kernel does for a host that is killed
    assert store.process.wait(timeout=20) == 0
    again = StoreApart(FolderPlace(str(tmp_path)), SPACE, 100)
    assert again.newest(100) == TEN
    again.close()


def test_this_process_runs_on_while_the_store_works(store):
    """Its own lock is free: other threads get to run for as long as the store takes."""
    store.process.send_signal(signal.SIGSTOP)
    appending = threading.Thread(target=store.append, args=(TEN,))
    appending.start()
    for _ in range(50):
        time.sleep(0.001)
    assert appending.is_alive()
    store.process.send_signal(signal.SIGCONT)
    appending.join(20)
    assert store.newest(100) == TEN


def test_nothing_of_the_pipes_is_left_open(tmp_path):
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        one = StoreApart(FolderPlace(str(tmp_path)), SPACE, 100)
        one.append(TEN)
        one.close()
    assert len(os.listdir("/proc/self/fd")) == before
