"""Tries out whether an idle engine orders what waits by what it is told of it.

All slots are filled, one with a shorter answer than the rest. Then come a request that is told to go last and one that
is told to go first; when the shorter answer ends, one of them gets its slot. Who is answered first says it.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp

from sagesched_sidecar.engine_mode import Finding
from sagesched_sidecar.engine_state import EngineState, read_metrics

Marks = Callable[[bool], dict[str, Any]]
"""Members of the body that tell the engine to let the request go first (True) or last (False)."""

LIMIT_SECONDS = 30.0
LOOK_SECONDS = 0.01
FIRST_FILL_TOKENS = 32
MAX_FILL_TOKENS = 512
TRIED_TOKENS = 8
_PATH = "/v1/completions"


class Undecided(Exception):
    """The trial says nothing, and why."""


class Trial:
    """One trial of one engine. `quiet`: whether nobody else needs the engine; the trial ends when somebody does."""

    def __init__(
        self, session: aiohttp.ClientSession, base_url: str, slots: int, marks: Marks, quiet: Callable[[], bool]
    ) -> None:
        self._session = session
        self._base_url = base_url
        self._slots = slots
        self._marks = marks
        self._quiet = quiet
        self._asked: list[asyncio.Task[None]] = []

    async def run(self) -> Finding:
        """The finding. Whatever was sent is answered, or aborted by closing its connection, when this returns."""
        fill_tokens = FIRST_FILL_TOKENS
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                while True:
                    try:
                        return await self._round(fill_tokens)
                    except _TooFast as fast:
                        fill_tokens *= 4
                        if fill_tokens > MAX_FILL_TOKENS:
                            return Finding("undecided", str(fast))
                    finally:
                        await self._give_up()
        except Undecided as undecided:
            return Finding("undecided", str(undecided))
        except TimeoutError:
            return Finding("undecided", f"the trial took more than {LIMIT_SECONDS:.0f} s")
        except (aiohttp.ClientError, OSError) as error:
            return Finding("undecided", f"the engine did not answer ({type(error).__name__})")

    async def _round(self, fill_tokens: int) -> Finding:
        short = self._ask(fill_tokens)
        for _ in range(self._slots - 1):
            self._ask(fill_tokens + 4 * TRIED_TOKENS)
        await self._until(short, running=self._slots, waiting=0)
        last = self._ask(TRIED_TOKENS, **self._marks(False))
        await self._until(short, running=self._slots, waiting=1)
        first = self._ask(TRIED_TOKENS, **self._marks(True))
        await self._until(short, running=self._slots, waiting=2)
        done: set[asyncio.Task[None]] = set()
        while not done:
            done, _ = await asyncio.wait({first, last}, timeout=LOOK_SECONDS, return_when=asyncio.FIRST_COMPLETED)
            self._check()
        for one in done:
            one.result()
        if len(done) == 2:
            raise _TooFast("both requests were answered at once")
        if first in done:
            return Finding("ordered", "the request that came later and was to go first was answered first")
        return Finding("unordered", "requests were answered in the order in which they came")

    async def _until(self, short: "asyncio.Task[None]", *, running: int, waiting: int) -> None:
        """Wait until the engine holds exactly so many."""
        state = EngineState()
        while (state.running, state.waiting) != (running, waiting):
            self._check()
            if short.done():
                short.result()
                raise _TooFast(
                    f"the engine never held {running} running and {waiting} waiting requests; is engine.slots right?"
                )
            await asyncio.sleep(LOOK_SECONDS)
            state = await self._look()

    def _check(self) -> None:
        if not self._quiet():
            raise Undecided("a client's request came")

    async def _look(self) -> EngineState:
        async with self._session.get(self._base_url + "/metrics") as answer:
            state = read_metrics(await answer.text())
        if state.running is None or state.waiting is None:
            raise Undecided("the engine's metrics do not say what runs and waits")
        return state

    def _ask(self, tokens: int, **members: Any) -> "asyncio.Task[None]":
        body = {"prompt": "Count.", "max_tokens": tokens, "ignore_eos": True, "temperature": 0, **members}
        task = asyncio.create_task(self._answered(body))
        self._asked.append(task)
        return task

    async def _answered(self, body: dict[str, Any]) -> None:
        async with self._session.post(self._base_url + _PATH, json=body) as answer:
            await answer.read()
            if answer.status != 200:
                raise Undecided(f"the engine answered a request of the trial with {answer.status}")

    async def _give_up(self) -> None:
        for task in self._asked:
            task.cancel()
        await asyncio.gather(*self._asked, return_exceptions=True)
        self._asked.clear()


class _TooFast(Undecided):
    """The engine was done before the trial had begun: longer answers may do."""
