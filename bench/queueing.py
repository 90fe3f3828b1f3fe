"""What waiting costs: 10,000 queued requests, each put in and taken out, at three depths of the code."""

import asyncio
import gc
import heapq
import random
import time
from collections.abc import Callable, Iterable

import numpy as np
from bench.figures import Figure, Result, quantile

from sagesched.gittins import Stopping
from sagesched.ranking import Ranking
from sagesched.request import Outcome, Request
from sagesched.settings import Engine, Queue, Settings
from sagesched.ticket import Ticket
from sagesched.waiting import Rank, WaitingOrder
from sagesched_sidecar.gate import Gate, Place

REQUESTS = 10_000
SEED = 1
LIMIT_US = 50.0
Seconds = list[float]
clock = time.perf_counter


class _Nobody:
    """An observer that counts nothing."""

    def waited(self, ticket: Ticket, outcome: str, seconds: float) -> None:
        """Nothing."""

    def promoted(self) -> None:
        """Nothing."""

    def troubled(self, cause: str) -> None:
        """Nothing."""


def run(say: Callable[[str], None], _: str | None) -> Result:
    """Measure each depth and the floor."""
    figures: list[Figure] = []
    for name, measure, limits in (
        ("heapq alone", _floor, (None, None)),
        ("waiting order", _order, (LIMIT_US, LIMIT_US)),
        ("ranking, its prediction included", _ranking, (None, LIMIT_US)),
        ("gate: ranking, capacity, a task each", _gate, (None, None)),
    ):
        say(f"queue: {REQUESTS:,} requests in and out, {name}")
        gc.collect()
        figures += _figures(name, measure(), limits)
    return Result("queue", tuple(figures), {"requests": REQUESTS, "seed": SEED})


def _figures(name: str, measured: tuple[Seconds, Seconds], limits: tuple[float | None, float | None]) -> list[Figure]:
    """Means over all requests, so that what is saved up for a later one counts too."""
    figures = []
    for what, seconds, limit in zip(("enqueue", "pop"), measured, limits, strict=True):
        p99 = f"P99 {1e6 * quantile(seconds, 0.99):.1f} us" if len(seconds) == REQUESTS else ""
        mean_us = 1e6 * sum(seconds) / len(seconds)
        figures.append(Figure(f"{name}: {what}", mean_us, "us", limit, p99))
    return figures


def _timed(action: Callable[[int], object], numbers: Iterable[int]) -> Seconds:
    seconds = []
    for number in numbers:
        began = clock()
        action(number)
        seconds.append(clock() - began)
    return seconds


def _ranks() -> list[Rank]:
    rng = random.Random(SEED)
    return [Rank(0, rng.random(), rng.random(), f"r{number}") for number in range(REQUESTS)]


def _floor() -> tuple[Seconds, Seconds]:
    ranks, heap = _ranks(), list[Rank]()
    put = _timed(lambda number: heapq.heappush(heap, ranks[number]), range(REQUESTS))
    return put, _timed(lambda _: heapq.heappop(heap), range(REQUESTS))


def _order() -> tuple[Seconds, Seconds]:
    ranks, order = _ranks(), WaitingOrder(300.0)

    def take(_: int) -> None:
        first = order.peek(1.0)
        assert first is not None
        order.remove(first.id)

    return _timed(lambda number: order.push(ranks[number]), range(REQUESTS)), _timed(take, range(REQUESTS))


def _taught() -> tuple[Ranking, list[Request]]:
    """A ranking that has learnt from as many requests as will wait, and those that will."""
    rng, ranking = random.Random(SEED), Ranking(Settings(), stopping=Stopping.NEVER, dimensions=2)
    vector = np.array([1.0, 0.0], dtype=np.float32)
    for number in range(REQUESTS):
        request = Request(id=f"h{number}", prompt_tokens=rng.randrange(1, 4000))
        ranking.learn(request, vector, Outcome(output_tokens=1 + int(rng.lognormvariate(5, 1))))
    requests = [
        Request(id=f"r{number}", prompt_tokens=rng.randrange(1, 4000), arrival_s=number * 1e-3)
        for number in range(REQUESTS)
    ]
    return ranking, requests


def _ranking() -> tuple[Seconds, Seconds]:
    """Ranking.admit predicts too, which the limit of the queue leaves out; Ranking.start is a pop and nothing else."""
    ranking, requests = _taught()

    def take(_: int) -> None:
        ticket = ranking.peek(11.0)
        assert ticket is not None
        ranking.start(ticket.request.id, 11.0)

    put = _timed(lambda number: ranking.admit(requests[number], None, 10.0), range(REQUESTS))
    return put, _timed(take, range(REQUESTS))


def _gate() -> tuple[Seconds, Seconds]:
    return asyncio.run(_through_gate())


async def _through_gate() -> tuple[Seconds, Seconds]:
    """One slot, held: all wait; then each end lets the next in. Means alone, as tasks run when the loop likes."""
    ranking, requests = _taught()
    gate = Gate(ranking, Queue(), Engine(slots=1), clock=lambda: 11.0, observer=_Nobody())
    served: asyncio.Queue[Place] = asyncio.Queue()

    async def one(request: Request) -> None:
        served.put_nowait(await gate.enter(request, None, 500))

    held = await gate.enter(Request(id="held", arrival_s=11.0), None, 0)
    began = clock()
    tasks = [asyncio.create_task(one(request)) for request in requests]
    await asyncio.sleep(0)
    assert ranking.waiting_count == REQUESTS
    put = (clock() - began) / REQUESTS
    began = clock()
    for _ in range(REQUESTS):
        held.finish(Outcome(output_tokens=100))
        held = await served.get()
    taken = (clock() - began) / REQUESTS
    held.finish(Outcome(output_tokens=100))
    await asyncio.gather(*tasks)
    return [put], [taken]
