"""The writer: what it was given is on the disk when it says so; a store that fails costs records, never a request."""

import asyncio
import threading

import pytest
from prometheus_client import CollectorRegistry
from store_records import SPACE, record

from sagesched_sidecar.history_metrics import HistoryMetrics
from sagesched_sidecar.history_writer import HistoryWriter, NotStoredError
from sagesched_store.memory import MemoryStore
from sagesched_store.protocol import StoreError


class Disk(MemoryStore):
    """A store that waits when it is told to, and fails as it is told to; it outlives being closed."""

    def __init__(self):
        super().__init__(SPACE, 100_000)
        self.go = threading.Event()
        self.go.set()
        self.entered = threading.Event()
        self.failing = ""
        self.batches = []
        self.opened = self.closed = 0

    def open(self):
        self.opened += 1
        if self.failing:
            raise StoreError(self.failing, "as it was told")
        return self

    def append(self, records):
        self.entered.set()
        assert self.go.wait(20)
        if self.failing:
            raise StoreError(self.failing, "as it was told")
        self.batches.append(len(records))
        super().append(records)

    def close(self):
        self.closed += 1


@pytest.fixture
async def begin():
    """`await begin(disk)`: a writer that writes, and its registry."""
    writers = []

    async def made(disk, limit=100, **options):
        registry = CollectorRegistry()
        writer = HistoryWriter(disk.open, HistoryMetrics(registry), **options)
        writers.append((disk, writer))
        writer.found = await writer.open(limit)
        writer.count = lambda name, **labels: registry.get_sample_value(f"sagesched_history_{name}", labels) or 0.0
        return writer

    yield made
    for disk, writer in writers:
        disk.go.set()
        await writer.close()


async def test_it_says_so_only_once_the_store_has_it(begin):
    disk = Disk()
    writer = await begin(disk)
    disk.go.clear()
    waiting = asyncio.ensure_future(writer.record(record(1)))
    await asyncio.sleep(0)
    await asyncio.to_thread(disk.entered.wait, 20)
    assert (waiting.done(), disk.count()) == (False, 0)
    disk.go.set()
    await waiting
    assert disk.count() == 1
    assert (writer.count("writes_total"), writer.count("write_seconds_count")) == (1, 1)


async def test_what_comes_while_it_writes_goes_as_one_batch_in_order(begin):
    disk = Disk()
    writer = await begin(disk)
    disk.go.clear()
    writer.put(record(0))
    await asyncio.to_thread(disk.entered.wait, 20)  # the writer has taken it and waits for the disk
    for number in range(1, 300):
        writer.put(record(number))
    disk.go.set()
    await writer.settled()
    assert disk.batches == [1, 256, 43]
    assert disk.newest(1000) == [record(number) for number in range(300)]


async def test_what_the_queue_does_not_hold_is_dropped_and_counted(begin):
    disk = Disk()
    writer = await begin(disk, max_waiting=10)
    disk.go.clear()
    writer.put(record(0))
    await asyncio.to_thread(disk.entered.wait, 20)
    fates = [writer.put(record(number)) for number in range(1, 16)]
    with pytest.raises(NotStoredError, match="queue-full"):
        await writer.durable(fates[-1])
    disk.go.set()
    for fate in fates[:10]:
        await writer.durable(fate)
    for fate in fates[10:]:
        with pytest.raises(NotStoredError):
            await writer.durable(fate)
    assert disk.count() == 11
    assert writer.count("write_dropped_total", reason="queue-full") == 5


async def test_a_store_that_fails_is_opened_again_and_what_it_lost_is_told(begin):
    disk = Disk()
    writer = await begin(disk, retry_s=600)
    await writer.record(record(1))
    disk.failing = "died"
    for number in (2, 3):
        with pytest.raises(NotStoredError, match="died"):
            await writer.record(record(number))
    assert (writer.trouble, disk.closed) == ("died", 1)
    assert writer.count("write_dropped_total", reason="died") == 2
    disk.failing = ""
    writer._line.retry_at_s = 0.0  # ten minutes later
    await writer.record(record(4))
    assert (writer.trouble, disk.opened) == ("", 2)
    assert disk.newest(10) == [record(1), record(4)]


async def test_a_server_that_is_away_gets_what_the_queue_holds_once_it_is_back(begin):
    disk = Disk()
    writer = await begin(disk, retry_s=1.0, max_waiting=5)
    disk.failing = "unreachable"
    fates = [writer.put(record(1))]
    with pytest.raises(NotStoredError, match="unreachable"):
        await writer.durable(fates[0])  # who waits is told, and the record goes on waiting
    fates += [writer.put(record(number)) for number in range(2, 9)]
    with pytest.raises(NotStoredError, match="queue-full"):
        await writer.durable(fates[-1])
    disk.failing = ""
    async with asyncio.timeout(20):
        while disk.count() < 5:
            await asyncio.sleep(0.01)
    assert disk.newest(10) == [record(number) for number in range(1, 6)]
    assert writer.count("write_dropped_total", reason="queue-full") == 3
    assert writer.count("write_dropped_total", reason="unreachable") == 0
    assert (disk.opened, disk.closed, writer.trouble) == (1, 0, "")


async def test_a_server_that_is_away_is_not_asked_at_once_again(begin):
    disk = Disk()
    writer = await begin(disk, retry_s=600)
    disk.failing = "unreachable"
    for _ in range(20):
        with pytest.raises(StoreError, match=r"as it was told|a moment ago"):
            await writer.ask(lambda store: store.append([record(1)]))
    assert writer.count("store_failures_total", reason="unreachable") == 1


async def test_records_wait_for_one_another_where_they_are_to_go_together(begin):
    disk = Disk()
    writer = await begin(disk, linger_s=0.2)
    for number in range(20):
        writer.put(record(number))
        await asyncio.sleep(0.001)
    await writer.settled()
    assert disk.batches == [20]


async def test_it_is_not_opened_again_at_once(begin):
    disk = Disk()
    writer = await begin(disk, retry_s=600)
    disk.failing = "died"
    for number in range(20):
        with pytest.raises(NotStoredError):
            await writer.record(record(number))
    assert disk.opened == 1
    assert writer.count("store_failures_total", reason="died") == 1


async def test_a_full_disk_is_tried_again_with_each_batch(begin):
    disk = Disk()
    writer = await begin(disk, retry_s=600)
    disk.failing = "disk-full"
    with pytest.raises(NotStoredError, match="disk-full"):
        await writer.record(record(1))
    disk.failing = ""
    await writer.record(record(2))
    assert (disk.opened, disk.closed) == (1, 0)


async def test_a_store_that_cannot_be_opened_at_the_start_may_be_later(begin, caplog):
    disk = Disk()
    disk.failing = "locked"
    writer = await begin(disk, retry_s=0.01)
    assert (writer.found, writer.trouble) == ([], "locked")
    assert writer.count("store_failures_total", reason="locked") == 1
    assert [entry.reason for entry in caplog.records if entry.levelname == "ERROR"] == ["locked"]
    disk.failing = ""
    await asyncio.sleep(0.02)
    await writer.record(record(1))
    assert disk.count() == 1


async def test_whatever_a_store_trips_over_the_next_batch_is_tried(begin):
    disk = Disk()
    writer = await begin(disk)
    with pytest.raises(NotStoredError, match="error"):
        await writer.record(record(1, embedder="of another space"))
    await writer.record(record(2))
    assert disk.count() == 1


async def test_closing_writes_what_waits_and_takes_no_more(begin):
    disk = Disk()
    writer = await begin(disk)
    disk.go.clear()
    fates = [writer.put(record(number)) for number in range(600)]
    closing = asyncio.ensure_future(writer.close())
    await asyncio.sleep(0.02)
    disk.go.set()
    await closing
    assert (disk.count(), disk.closed) == (600, 1)
    await writer.durable(fates[-1])
    with pytest.raises(NotStoredError, match="closed"):
        await writer.record(record(1000))


async def test_a_store_that_hangs_does_not_hold_up_the_end(begin, monkeypatch):
    monkeypatch.setattr("sagesched_sidecar.history_writer.CLOSE_SECONDS", 0.05)
    disk = Disk()
    writer = await begin(disk)
    disk.go.clear()
    waiting = asyncio.ensure_future(writer.record(record(1)))
    await asyncio.sleep(0.02)
    await writer.close()
    with pytest.raises(NotStoredError, match="closed"):
        await waiting


async def test_one_that_no_longer_waits_leaves_the_others_alone(begin):
    disk = Disk()
    writer = await begin(disk)
    disk.go.clear()
    one, two = (asyncio.ensure_future(writer.record(record(number))) for number in (1, 2))
    await asyncio.sleep(0.02)
    one.cancel()
    disk.go.set()
    await two
    assert disk.count() == 2


async def test_its_newest_records_are_found_at_the_start(begin):
    disk = Disk()
    disk.append([record(number) for number in range(10)])
    writer = await begin(disk, limit=4)
    assert writer.found == [record(number) for number in range(6, 10)]
    assert writer.count("loaded_rows") == 4
