"""What streaming costs: 100 streams at once, 150 events each, every event sent on as it arrives."""

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import NamedTuple, cast

import uvloop
from bench.client import request_bytes
from bench.figures import Figure, Result
from bench.processes import Process, settle, sidecar, started

STREAMS = 100
EVENTS = 150
PACE_MS = 20.0
SEED = 1
LIMIT_CPU_S = 1.0
MOST_JOINED = 0.05
"""Share of reads by the client that may hold more than one event: a busy machine reads late."""
_LIMIT_S = 120.0


class Counted(NamedTuple):
    """What the clients saw, and what it cost the process that they asked."""

    events: int
    reads: int
    cpu_s: float
    wall_s: float
    memory_mib: float
    highest_mib: float


class _Stream(asyncio.Protocol):
    """Counts the events of one stream, and the reads in which they came."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self._last = b""
        self.events = self.reads = 0
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        tokens = data.count(b'"delta":')
        self.events += tokens
        self.reads += tokens > 0
        self._last = (self._last + data)[-7:]
        if self._last.endswith(b"0\r\n\r\n") and not self.ended.done():
            self.ended.set_result(None)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        if not self.ended.done():
            self.ended.set_exception(exc or ConnectionError("a stream was cut"))


def run(say: Callable[[str], None], _: str | None) -> Result:
    """Measure the sidecar, and a bare pass-through proxy beside it."""
    with started("bench.upstream") as upstream:
        directly = _measure(say, "directly", upstream)
        ours = _through(say, "through the sidecar", sidecar(upstream))
        bare = _through(say, "through a bare aiohttp proxy", started("bench.passthrough", upstream.url))
    events = f"{STREAMS * EVENTS:,} events"
    notes = []
    if ours.events != STREAMS * EVENTS:
        notes.append(f"events: {ours.events:,} came of {STREAMS * EVENTS:,}")
    figures = (
        Figure(f"sidecar's CPU for {events}", ours.cpu_s, "s", LIMIT_CPU_S, f"bare aiohttp proxy {bare.cpu_s:.2f} s"),
        Figure("  of one event", 1e6 * ours.cpu_s / ours.events, "us"),
        Figure("events that never came", STREAMS * EVENTS - ours.events, "", 0),
        Figure("events that came joined to another", 1 - ours.reads / ours.events, "share", MOST_JOINED,
               f"directly {1 - directly.reads / directly.events:.4f}"),
        Figure("wall time", ours.wall_s, "s", beside=f"directly {directly.wall_s:.2f} s"),
        Figure("sidecar's memory with all streams open, highest", ours.highest_mib, "MiB",
               beside=f"after them {ours.memory_mib:.0f} MiB; bare aiohttp proxy {bare.highest_mib:.0f} MiB"),
    )  # fmt: skip
    return Result("streaming", figures, {"streams": STREAMS, "events": EVENTS, "pace_ms": PACE_MS, "seed": SEED},
                  tuple(notes))  # fmt: skip


def _through(say: Callable[[str], None], name: str, proxy: AbstractContextManager[Process]) -> Counted:
    with proxy as process:
        settle(process)
        return _measure(say, name, process)


def _measure(say: Callable[[str], None], name: str, process: Process) -> Counted:
    say(f"streaming: {STREAMS} streams of {EVENTS} events, one each {PACE_MS:g} ms, {name}")
    before, began = process.cpu_s(), time.perf_counter()
    events, reads = uvloop.run(_clients(process.address))
    wall_s = time.perf_counter() - began
    settle(process)
    return Counted(events, reads, process.cpu_s() - before, wall_s, process.memory_mib(), process.memory_mib("VmHWM"))


async def _clients(address: tuple[str, int]) -> tuple[int, int]:
    """All streams at once, begun at random moments of one pace, so that their events do not come in step."""
    rng, loop = random.Random(SEED), asyncio.get_running_loop()
    request = request_bytes(stream=True, events=EVENTS, pace_ms=PACE_MS)
    streams: list[_Stream] = []
    async with asyncio.timeout(_LIMIT_S):
        for _ in range(STREAMS):
            await asyncio.sleep(rng.random() * 2 * PACE_MS / 1000 / STREAMS * 5)
            _, stream = await loop.create_connection(lambda: _Stream(request), *address)
            streams.append(stream)
        await asyncio.gather(*(stream.ended for stream in streams))
    return sum(stream.events for stream in streams), sum(stream.reads for stream in streams)
