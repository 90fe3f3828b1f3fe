"""A queue of policies to look at: one at a time for each, however often it is asked for; after a failure later and
later, with some chance in it, so that many do not come back at once."""

import asyncio
import contextlib
import heapq
import logging
from collections.abc import Awaitable, Callable
from random import Random

from sagesched_operator.reconcile import Key

FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.2, 60.0

_log = logging.getLogger(__name__)


class Work:
    """`ask` may be called as often as one likes; `run` serves with a number of workers until it is cancelled."""

    def __init__(self, serve: Callable[[Key], Awaitable[float | None]], rng: Random) -> None:
        self._serve = serve
        self._rng = rng
        self._later: list[tuple[float, Key]] = []
        self._due: dict[Key, float] = {}
        """When each is to be looked at; an entry of `_later` with another time is out of date."""
        self._busy: set[Key] = set()
        self._failures: dict[Key, int] = {}
        self._changed = asyncio.Event()

    def ask(self, key: Key, after_s: float = 0.0) -> None:
        """Look at a policy, at the latest after so many seconds."""
        at = asyncio.get_running_loop().time() + after_s
        if at < self._due.get(key, float("inf")):
            self._due[key] = at
            heapq.heappush(self._later, (at, key))
            self._changed.set()

    async def run(self, workers: int) -> None:
        """Serve until cancelled."""
        async with asyncio.TaskGroup() as group:
            for _ in range(workers):
                group.create_task(self._worker())

    async def _worker(self) -> None:
        while True:
            key = await self._next()
            self._busy.add(key)
            try:
                again_s = await self._serve(key)
                self._failures.pop(key, None)
            except Exception as error:  # whatever it is, this policy is tried again and the others are served
                again_s = self._delay_s(key)
                _log.warning(
                    "will be tried again", extra={"policy": "/".join(key), "problem": str(error), "in_s": again_s}
                )
            finally:
                self._busy.discard(key)
                self._changed.set()
            if again_s is not None:
                self.ask(key, again_s)

    async def _next(self) -> Key:
        """The next that is due and that nobody works on."""
        while True:
            self._changed.clear()
            now = asyncio.get_running_loop().time()
            key = self._take(now)
            if key is not None:
                return key
            wait_s = max(0.001, self._later[0][0] - now) if self._later else None
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), wait_s)

    def _take(self, now: float) -> Key | None:
        waiting = []
        found = None
        while self._later and self._later[0][0] <= now and found is None:
            at, key = heapq.heappop(self._later)
            if self._due.get(key) != at:
                continue
            if key in self._busy:
                waiting.append((now + 0.05, key))
                continue
            del self._due[key]
            found = key
        for at, key in waiting:
            self._due[key] = at
            heapq.heappush(self._later, (at, key))
        return found

    def _delay_s(self, key: Key) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        delay_s = min(LONGEST_DELAY_SECONDS, FIRST_DELAY_SECONDS * 2.0 ** min(failures - 1, 16))
        return delay_s * self._rng.uniform(0.5, 1.0)
