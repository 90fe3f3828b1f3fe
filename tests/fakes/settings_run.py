"""A real sidecar before a simulated engine, under load, while its settings file is swapped and poisoned."""

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
from fault_run import BAD_IN_LOG, Child

from sagesched.settings import Settings, decode, digest

CLASSES = ("first", "middle", "last")
MODEL = "sagesched-sim"
POLL_S = 0.02
SEEN_WITHIN_S = 20.0
POISON = (
    b"",
    b"\n",
    b"queue: {maxRequests: 0}",
    b"scheduling: {policy: lifo}",
    b"schedulin: {}",
    b"[1, 2]",
    b"a: [",
    b"\x00\xff\xfe",
    b"scheduling: {classes: [{name: a}, {name: a}]}",
    b"stable: {}\ncandidate: {pods: [nobody], settings: {queue: {maxRequests: 0}}}",
    b"2001-99-99",
    b"&a [*a, *a]",
    b"history: {seedFile: /no/such/file}",
    b"x" * (3 << 20),
)


def good(rng: random.Random) -> dict[str, Any]:
    """Valid settings under which no request is refused: the queue is never the bound."""
    priorities = rng.sample(range(-5, 6), len(CLASSES))
    return {
        "scheduling": {
            "policy": rng.choice(["fcfs", "sjf", "mean", "gittins", "sagesched"]),
            "boost": rng.choice([0, 0.02, 0.5]),
            "bucketTokens": rng.choice([10, 200]),
            "similarityThreshold": rng.choice([0.5, 0.8]),
            "neighbours": rng.choice([5, 50]),
            "alpha": rng.choice([0, 1.5]),
            "maxWaitSeconds": rng.choice([60, 300]),
            "classes": [{"name": n, "priority": p} for n, p in zip(CLASSES, priorities, strict=True)],
        },
        "history": {"windowRows": rng.choice([50, 500, 2000])},
        "engine": {"slots": rng.randint(3, 6), "metricsIntervalSeconds": rng.choice([0.1, 1])},
        "queue": {"maxRequests": rng.randint(1000, 2000)},
    }


class Mount:
    """A settings file that is either written in place or projected as the kubelet does it: links, `..data` renamed."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._folder = folder
        self._rng = rng
        self._version = 0
        self.file = folder / "settings.yaml"
        self.swaps: Counter[str] = Counter()

    def put(self, content: bytes) -> None:
        """The whole content, in one of three ways."""
        how = self._rng.choice(["links", "links", "renamed", "in place"])
        self.swaps[how] += 1
        if how == "links":
            self._project(content)
        elif how == "renamed":
            (self._folder / "new").write_bytes(content)
            (self._folder / "new").rename(self.file)
        else:
            self._unlinked()
            self.file.write_bytes(content)

    async def put_slowly(self, content: bytes) -> None:
        """Cut off in the middle, for a moment; then the rest."""
        self.swaps["in two writes"] += 1
        self._unlinked()
        middle = self._rng.randrange(len(content))
        with self.file.open("wb", buffering=0) as file:
            file.write(content[:middle])
            await asyncio.sleep(self._rng.uniform(0, 0.03))
            file.write(content[middle:])

    def take_away(self) -> None:
        self.swaps["taken away"] += 1
        self.file.unlink(missing_ok=True)

    def _unlinked(self) -> None:
        if self.file.is_symlink():
            self.file.unlink()

    def _project(self, content: bytes) -> None:
        self._version += 1
        data = self._folder / f"..{self._version}"
        data.mkdir()
        (data / "settings.yaml").write_bytes(content)
        os.utime(data / "settings.yaml", (1, 1))
        (self._folder / "..tmp").symlink_to(data.name)
        (self._folder / "..tmp").rename(self._folder / "..data")
        if not self.file.is_symlink():
            (self._folder / "link").symlink_to("..data/settings.yaml")
            (self._folder / "link").rename(self.file)
        old = self._folder / f"..{self._version - 1}"
        if old.exists():
            (old / "settings.yaml").unlink()
            old.rmdir()


class Load:
    """Clients that ask one after another until they are told to stop; every answer is checked."""

    def __init__(self, url: str, session: aiohttp.ClientSession, rng: random.Random) -> None:
        self._url = url
        self._session = session
        self._rng = rng
        self._sent = 0
        self.ended: Counter[str] = Counter()
        self.open: dict[str, str] = {}
        """Class by id of what is under way."""
        self.stopping = False

    async def client(self) -> None:
        while not self.stopping:
            self._sent += 1
            which, name = f"q{self._sent}", self._rng.choice(CLASSES)
            self.open[which] = name
            try:
                how = await self._one(which, name)
            except (aiohttp.ClientError, TimeoutError, ValueError) as error:
                how = f"lost: {type(error).__name__}"
            del self.open[which]
            self.ended[how] += 1

    async def _one(self, which: str, name: str) -> str:
        tokens, streams = self._rng.randint(1, 60), self._rng.random() < 0.5
        words = " ".join(self._rng.choice(["write", "list", "tell", "poem", "code", "short"]) for _ in range(12))
        body = {
            "model": MODEL,
            "max_tokens": tokens,
            "ignore_eos": True,
            "stream": streams,
            "messages": [{"role": "user", "content": words}],
        }
        headers = {"X-Request-Id": which, "X-Sagesched-Class": name}
        async with self._session.post(f"{self._url}/v1/chat/completions", json=body, headers=headers) as answer:
            text = await answer.text()
            if answer.status != 200:
                return f"lost: {answer.status} {answer.headers.get('x-llm-d-request-dropped-reason')}"
            if streams:
                return "answered" if text.endswith("data: [DONE]\n\n") and 'usage":{' not in text else "lost: stream"
            return "answered" if json.loads(text)["usage"]["completion_tokens"] == tokens else "lost: tokens"


class Stage:
    """The processes, the mount and the load."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self._folder = folder
        (folder / "mount").mkdir()
        self.mount = Mount(folder / "mount", self.rng)
        self.engine = Child([], folder)
        self.sidecar = Child([], folder)
        self.last_good = Settings()
        self.good_digests: set[str] = set()
        self.ordered = 0
        """Looks at the queue that found it in the order of the settings of that moment."""

    def _good(self) -> dict[str, Any]:
        document = good(self.rng)
        self.good_digests.add(digest(decode(document)))
        return document

    async def begin(self) -> None:
        engine = [sys.executable, "-m", "sagesched_sim", "--speedup", "4", "--stream-interval", "8"]
        self.engine = await Child(engine, self._folder / "engine.log").start()
        document = self._good()
        self.last_good = decode(document)
        self.mount.put(json.dumps(document).encode())
        command = ["-m", "sagesched_sidecar", "--upstream", self.engine.url, "--port", "0", "--log-level", "info"]
        command += ["--settings", str(self.mount.file), "--settings-poll", str(POLL_S)]
        self.sidecar = await Child([sys.executable, *command], self._folder / "sidecar.log").start()
        self.session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=120))
        self.load = Load(self.sidecar.url, self.session, self.rng)

    async def get(self, path: str) -> dict[str, Any]:
        async with self.session.get(self.sidecar.url + path) as answer:
            found = await answer.json(content_type=None)
            assert isinstance(found, dict)
            return found

    async def settings(self) -> dict[str, Any]:
        found: dict[str, Any] = (await self.get("/sagesched/status"))["settings"]
        return found

    async def blind(self) -> None:
        """One swap that nobody waits for."""
        how = self.rng.random()
        if how < 0.3:
            self.mount.put(self.rng.choice(POISON))
        elif how < 0.35:
            self.mount.take_away()
        elif how < 0.6:
            await self.mount.put_slowly(json.dumps(self._good()).encode())
        else:
            self.mount.put(json.dumps(self._good()).encode())
        await asyncio.sleep(self.rng.choice([0, 0.01, 0.15]))

    async def good_one(self) -> None:
        """Good settings, until they are in use."""
        document = self._good()
        self.last_good = decode(document)
        content = json.dumps(document).encode()
        if self.rng.random() < 0.3:
            revisions = {"stable": {}, "candidate": {"pods": [os.environ.get("HOSTNAME", "")], "settings": document}}
            content = json.dumps(revisions if os.environ.get("HOSTNAME") else {"stable": document}).encode()
        self.mount.put(content)
        await self._until(lambda now: now["digest"] == digest(self.last_good) and now["last_reload"]["problem"] is None)

    async def bad_one(self) -> None:
        """Something that cannot be used, until the sidecar says so; the good settings stay."""
        if self.rng.random() < 0.2:
            self.mount.take_away()
        else:
            self.mount.put(self.rng.choice(POISON))
        now = await self._until(lambda now: now["last_reload"]["problem"] is not None)
        assert now["digest"] == digest(self.last_good), "the last good settings stay"

    async def _until(self, true: Any) -> dict[str, Any]:
        end = time.monotonic() + SEEN_WITHIN_S
        while not true(now := await self.settings()):
            assert time.monotonic() < end, (now, digest(self.last_good))
            await asyncio.sleep(0.01)
        return now

    async def look_at_the_order(self) -> None:
        """What waits stands in the order of the settings in use: in the class's priority of now, by its rank."""
        priorities = {one.name: one.priority for one in self.last_good.scheduling.classes}
        placed = []
        for which, name in list(self.load.open.items())[:12]:
            found = await self.get(f"/sagesched/explain/{which}")
            if found.get("phase") == "waiting":
                assert found["policy"] == self.last_good.scheduling.policy
                assert found["rank"][0] == priorities[name], (which, name, found["rank"], priorities)
                placed.append(tuple(found["rank"]))
        self.ordered += len(placed) > 1

    async def end(self) -> int:
        self.load.stopping = True
        await self.session.close()
        status = await self.sidecar.stop(signal.SIGTERM)
        await self.engine.stop()
        return status

    def digests_used(self) -> set[str]:
        """Of all settings that the sidecar has said to use."""
        lines = (json.loads(line) for line in self.sidecar.log.read_text(errors="replace").splitlines())
        return {line["digest"] for line in lines if "digest" in line}

    def wrong_in_log(self) -> list[str]:
        lines = self.sidecar.log.read_text(errors="replace").splitlines()
        return [line[:300] for line in lines if any(bad in line for bad in BAD_IN_LOG)]


@contextlib.asynccontextmanager
async def stage(folder: Path, seed: int) -> AsyncIterator[Stage]:
    """Begun, and ended whatever happens."""
    made = Stage(folder, seed)
    try:
        await made.begin()
        yield made
    finally:
        for child in (made.sidecar, made.engine):
            if child.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, signal.SIGKILL)
