"""A real sidecar before an engine that fails and is killed, and what is true of it when all requests have ended."""

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

FAKES = Path(__file__).parent
SLOTS = 24
QUEUE = 40
START_S = 30.0
QUIET_S = 20.0
BAD_IN_LOG = ("never retrieved", "Traceback", '"levelname": "ERROR"', "exception was never")


class Child:
    """A process with a URL."""

    def __init__(self, command: list[str], log: Path) -> None:
        self._command = command
        self.log = log
        self.url = ""
        self.pid = 0

    async def start(self) -> "Child":
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdout=asyncio.subprocess.PIPE, stderr=log
            )
        assert self._process.stdout is not None
        async with asyncio.timeout(START_S):
            self.url = json.loads(await self._process.stdout.readline())["url"]
        self.pid = self._process.pid
        return self

    @property
    def address(self) -> tuple[str, int]:
        at = urlsplit(self.url)
        assert at.hostname
        assert at.port
        return at.hostname, at.port

    async def stop(self, number: int = signal.SIGKILL) -> int:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(number)
        return await self._process.wait()

    def memory_mib(self) -> float:
        status = Path(f"/proc/{self.pid}/status").read_text()
        return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")) / 1024

    def open_files(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))


async def get(address: tuple[str, int], path: str) -> tuple[int, str]:
    """Status and body."""
    reader, writer = await asyncio.open_connection(*address)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        return int(head.split(b" ")[1]), body.decode()
    finally:
        writer.close()


async def until(true: Callable[[], Any], limit_s: float = QUIET_S) -> bool:
    """Whether the awaited condition came true in time."""
    end = time.monotonic() + limit_s
    while not await true():
        if time.monotonic() > end:
            return False
        await asyncio.sleep(0.05)
    return True


class Stage:
    """The sidecar and the engine that is killed and started again."""

    def __init__(self, folder: Path, max_body_bytes: int) -> None:
        self._folder = folder
        self._max_body_bytes = max_body_bytes
        self.engine = Child([], folder)
        self.sidecar = Child([], folder)
        self.restarts = 0
        self.recoveries = 0

    async def begin(self) -> None:
        await self._start_engine(0)
        settings = {
            "queue": {"maxRequests": QUEUE},
            "engine": {"slots": SLOTS, "metricsIntervalSeconds": 0.1},
            "server": {"maxBodyBytes": self._max_body_bytes},
            "history": {"windowRows": 1000},
        }
        file = self._folder / "settings.yaml"
        file.write_text(json.dumps(settings))
        command = ["-m", "sagesched_sidecar", "--upstream", self.engine.url, "--port", "0", "--settings", str(file)]
        self.sidecar = await Child([sys.executable, *command], self._folder / "sidecar.log").start()
        assert await until(self.ready)

    async def _start_engine(self, port: int) -> None:
        command = [sys.executable, str(FAKES / "faulty_engine.py"), str(port)]
        self.engine = await Child(command, self._folder / "engine.log").start()

    async def restart_engine(self) -> None:
        """Kill it, wait until the sidecar says so, start it on the same port, wait until the sidecar is ready again."""
        port = self.engine.address[1]
        await self.engine.stop()
        self.restarts += 1
        unready = await until(self._unready)
        await self._start_engine(port)
        self.recoveries += unready and await until(self.ready)

    async def ready(self) -> bool:
        return (await get(self.sidecar.address, "/readyz"))[0] == 200

    async def _unready(self) -> bool:
        return not await self.ready()

    async def metrics(self) -> dict[str, float]:
        """Every sample by its name and labels as exposed."""
        _, text = await get(self.sidecar.address, "/metrics")
        samples = (line.rpartition(" ") for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, _, value in samples}

    async def at_rest(self) -> bool:
        """Nothing waits, nothing runs, no bytes are held."""
        samples = await self.metrics()
        names = ("sagesched_queue_depth", "sagesched_running", "sagesched_queue_bytes")
        return not any(value for name, value in samples.items() if name.split("{")[0] in names)

    def wrong_in_log(self) -> list[str]:
        lines = self.sidecar.log.read_text(errors="replace").splitlines()
        return [line[:300] for line in lines if any(bad in line for bad in BAD_IN_LOG)]

    async def end(self) -> int:
        status = await self.sidecar.stop(signal.SIGTERM)
        await self.engine.stop()
        return status


@contextlib.asynccontextmanager
async def stage(folder: Path, max_body_bytes: int) -> AsyncIterator[Stage]:
    """Begun, and ended whatever happens."""
    made = Stage(folder, max_body_bytes)
    try:
        await made.begin()
        yield made
    finally:
        for child in (made.sidecar, made.engine):
            if child.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGKILL)


class Run:
    """Many requests at once, bursts among them, while the engine is killed now and then."""

    def __init__(self, clients: Any, on: Stage, seed: int, *, at_once: int, burst: int) -> None:
        self._clients = clients
        self._stage = on
        self._rng = random.Random(seed)
        self._at_once = at_once
        self._burst = burst
        self.tally = clients.Tally()
        self.sent = 0

    async def requests(self, count: int, restarts: int, deadline_s: float, say: Callable[[str], None]) -> None:
        """Send so many, in waves; the engine is restarted during `restarts` of them, evenly spread."""
        waves = max(restarts, round(count / (self._at_once * 4)))
        for wave in range(waves):
            size = count * (wave + 1) // waves - count * wave // waves
            steps = [self._wave(size, self._burst if wave % 5 == 1 else self._at_once)]
            if (wave + 1) * restarts // waves > wave * restarts // waves:
                steps.append(self._stage.restart_engine())
            await asyncio.gather(*steps)
            say(f"{self.sent:,} sent: {dict(sorted(self.tally.items()))}; {self._stage.sidecar.memory_mib():.1f} MiB")
            if time.monotonic() > deadline_s:
                return

    async def _wave(self, size: int, at_once: int) -> None:
        limit = asyncio.Semaphore(at_once)

        async def one(plan: Any) -> None:
            async with limit:
                self.tally[await self._clients.one(self._stage.sidecar.address, plan)] += 1

        self.sent += size
        await asyncio.gather(*(one(self._clients.plan(self._rng)) for _ in range(size)))
