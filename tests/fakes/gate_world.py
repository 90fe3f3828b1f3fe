"""A gate without a network: its clock, what it tells, and clients that come as far as they get."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from sagesched.gittins import Stopping
from sagesched.ranking import Ranking
from sagesched.request import Features, Outcome, Request
from sagesched.settings import Settings, decode
from sagesched.ticket import Ticket
from sagesched_sidecar.gate import Gate, Place, Refused

DIMENSIONS = 4
DONE = Outcome(output_tokens=5)


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Counts:
    """What the gate told."""

    def __init__(self) -> None:
        self.outcomes: dict[str, list[str]] = {}
        self.promotions = 0
        self.troubles: list[str] = []
        self.on_grant: Callable[[], None] = lambda: None

    def waited(self, ticket: Ticket, outcome: str, seconds: float) -> None:
        assert seconds >= 0
        self.outcomes.setdefault(ticket.request.id, []).append(outcome)
        if outcome == "granted":
            self.on_grant()

    def promoted(self) -> None:
        self.promotions += 1

    def troubled(self, cause: str) -> None:
        self.troubles.append(cause)


class World:
    """A gate, its clock, and its clients. A length is told by `max_tokens`, all of it being predicted."""

    def __init__(self, policy: str = "fcfs", **sections: dict[str, Any]) -> None:
        self._policy = policy
        self.settings = self.changed(**sections)
        self.clock, self.counts = Clock(), Counts()
        ranking = Ranking(self.settings, stopping=Stopping.NEVER, dimensions=DIMENSIONS)
        self.gate = Gate(ranking, self.settings.queue, self.settings.engine, clock=self.clock, observer=self.counts)
        self.tasks: dict[str, asyncio.Task[Place]] = {}

    def changed(self, **sections: dict[str, Any]) -> Settings:
        """Settings for this world: one slot and no reserve where the sections say nothing else."""
        sections["engine"] = {"slots": 1, "kvReserve": 0, **sections.get("engine", {})}
        sections["scheduling"] = {"policy": self._policy, **sections.get("scheduling", {})}
        sections.setdefault("server", {"maxBodyBytes": 1024})
        return decode(sections)

    async def enter(
        self, which: str, *, tokens: int = 4, prompt: int = 0, priority: int = 0, bytes_: int = 10
    ) -> asyncio.Task[Place]:
        """A client that has come as far as it gets by itself."""
        request = Request(
            id=which,
            prompt_tokens=prompt,
            priority=priority,
            arrival_s=self.clock(),
            features=Features(max_tokens=tokens),
        )
        self.tasks[which] = asyncio.ensure_future(self.gate.enter(request, None, bytes_))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return self.tasks[which]

    def granted(self) -> list[str]:
        """Who has had a turn, in order."""
        return [which for which, outcomes in self.counts.outcomes.items() if outcomes == ["granted"]]

    async def refused(self, which: str) -> Refused:
        with pytest.raises(Refused) as caught:
            await self.tasks[which]
        return caught.value

    def assert_empty(self) -> None:
        now = self.gate.snapshot()
        assert (now.waiting, now.waiting_bytes, now.running, now.oldest_s) == (0, 0, 0, 0.0)
        assert now.waiting_by_class == {}
        assert now.predicted_waiting_tokens == 0
        assert self.gate.ranking.tickets() == []


async def serve_all(world: World) -> list[str]:
    """Finish whoever runs, one at a time, until nobody is left; who started, in order."""
    while any(not task.done() for task in world.tasks.values()) or world.gate.snapshot().running:
        await asyncio.sleep(0)
        for task in world.tasks.values():
            if task.done() and not task.cancelled() and not task.exception() and not task.result().ended:
                task.result().finish(DONE)
                break
    return world.granted()
