"""The queue of policies: none is lost, none is served twice at once, failures do not hold the others up."""

import asyncio
from collections import Counter
from random import Random

from sagesched_operator.reconcile import Key
from sagesched_operator.work import Work

KEYS = [Key("n", f"p{i}") for i in range(20)]


async def running(work: Work, until: asyncio.Event, workers: int = 4) -> None:
    task = asyncio.create_task(work.run(workers))
    try:
        async with asyncio.timeout(20):
            await until.wait()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_each_is_served_and_never_twice_at_once() -> None:
    served, busy, done, clashes = Counter[Key](), set[Key](), asyncio.Event(), list[Key]()

    async def serve(key: Key) -> None:
        if key in busy:
            clashes.append(key)
        busy.add(key)
        await asyncio.sleep(0.001)
        busy.discard(key)
        served[key] += 1
        if served[key] < 3:
            work.ask(key)
            work.ask(key)
        if min(served[key] for key in KEYS) >= 3:
            done.set()

    work = Work(serve, Random(1))
    for key in KEYS:
        work.ask(key)
        work.ask(key)
    await running(work, done)
    assert not clashes
    assert set(served) == set(KEYS)


async def test_what_is_asked_for_while_it_is_served_is_served_again() -> None:
    times, done = 0, asyncio.Event()

    async def serve(key: Key) -> None:
        nonlocal times
        times += 1
        if times == 1:
            work.ask(key)
            await asyncio.sleep(0.01)
        else:
            done.set()

    work = Work(serve, Random(1))
    work.ask(KEYS[0])
    await running(work, done)
    assert times == 2


async def test_a_failure_is_tried_again_and_holds_nobody_up() -> None:
    failures, done, order = 0, asyncio.Event(), list[Key]()

    async def serve(key: Key) -> None:
        nonlocal failures
        if key == KEYS[0] and failures < 2:
            failures += 1
            raise RuntimeError("no")
        order.append(key)
        if key == KEYS[0]:
            done.set()

    work = Work(serve, Random(1))
    for key in KEYS[:5]:
        work.ask(key)
    await running(work, done, workers=1)
    assert order[-1] == KEYS[0]
    assert set(order) == set(KEYS[:5])


async def test_a_second_look_comes_when_it_was_asked_for() -> None:
    times, done = 0, asyncio.Event()

    async def serve(_: Key) -> float | None:
        nonlocal times
        times += 1
        if times == 3:
            done.set()
            return None
        return 0.01

    work = Work(serve, Random(1))
    work.ask(KEYS[0])
    await running(work, done)
    assert times == 3
