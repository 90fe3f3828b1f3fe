"""When a request is predicted: before its turn where it waits, afterwards where it does not; once either way."""

import asyncio

import numpy as np
import pytest
from gate_world import DIMENSIONS, DONE, World, serve_all

from sagesched.history import Vector
from sagesched.request import Features, Outcome, Request
from sagesched_sidecar.foresight import Foresight


def axis(which: int) -> Vector:
    return np.eye(DIMENSIONS, dtype=np.float32)[which]


class Embedding:
    """Counts how often it is asked; gives its vector once it may."""

    def __init__(self, vector: Vector | None, *, at_once: bool = True) -> None:
        self.vector, self.asked, self.may = vector, 0, asyncio.Event()
        if at_once:
            self.may.set()

    async def __call__(self) -> Vector | None:
        self.asked += 1
        await self.may.wait()
        return self.vector


def request(world: World, which: str) -> Request:
    return Request(id=which, arrival_s=world.clock())


def taught(world: World) -> None:
    """Prompts along the first axis have short answers, along the second long ones."""
    for k in range(20):
        for which, tokens in ((0, 10), (1, 2000)):
            world.gate.ranking.learn(Request(id=f"h{k}"), axis(which), Outcome(output_tokens=tokens))


async def test_only_what_waits_is_embedded_before_its_turn() -> None:
    world = World("sjf")
    at_once, waits = Embedding(axis(0)), Embedding(axis(0))
    place = await world.gate.enter(request(world, "first"), None, 1, at_once)
    world.tasks["second"] = asyncio.ensure_future(world.gate.enter(request(world, "second"), None, 1, waits))
    await asyncio.sleep(0)
    assert (at_once.asked, waits.asked) == (0, 1)
    place.finish(DONE)
    (await world.tasks["second"]).finish(DONE)
    world.assert_empty()


async def test_what_waits_is_ordered_by_its_embedding() -> None:
    world = World("sjf")
    taught(world)
    await world.enter("runs")
    for which, near in (("long", 1), ("short", 0)):
        entering = world.gate.enter(request(world, which), None, 1, Embedding(axis(near)))
        world.tasks[which] = asyncio.ensure_future(entering)
        await asyncio.sleep(0)
    assert await serve_all(world) == ["runs", "short", "long"]


async def test_a_turn_that_comes_while_it_is_embedded_is_not_put_off() -> None:
    world = World("sjf")
    runs, slow = await (await world.enter("runs")), Embedding(axis(0), at_once=False)
    waits = asyncio.ensure_future(world.gate.enter(request(world, "waits"), None, 1, slow))
    await asyncio.sleep(0)
    runs.finish(DONE)
    assert world.granted() == ["runs", "waits"]
    slow.may.set()
    (await waits).finish(DONE)
    world.assert_empty()


async def test_a_client_that_leaves_while_it_is_embedded_frees_its_place() -> None:
    world = World("sjf")
    runs, slow = await (await world.enter("runs")), Embedding(axis(0), at_once=False)
    gone = asyncio.ensure_future(world.gate.enter(request(world, "gone"), None, 1, slow))
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    runs.finish(DONE)
    assert world.counts.outcomes["gone"] == ["left"]
    world.assert_empty()


async def test_what_runs_is_refined_once_and_learnt_from() -> None:
    world = World("sjf")
    taught(world)
    embed = Embedding(axis(1))
    foresight = Foresight(world.gate, embed, world.clock, inline=True)
    place = await world.gate.enter(request(world, "r"), None, 1, foresight.embedding)
    neutral = place.ticket.belief.mean_tokens()
    place.progress(3)
    foresight.refine_soon(place)
    await foresight.refine(place)
    await asyncio.sleep(0)
    assert embed.asked == 1
    assert place.ticket.belief.mean_tokens() > neutral
    assert place.ticket.generated_tokens == 3
    assert place.predicted_tokens == 3 + place.ticket.belief.mean_tokens()
    known = len(world.gate.ranking.predictor.window)
    place.finish(Outcome(output_tokens=1900))
    assert len(world.gate.ranking.predictor.window) == known + 1
    world.assert_empty()


@pytest.mark.parametrize(("inline", "asked"), [(True, 1), (False, 0)])
async def test_only_an_embedding_that_takes_no_waiting_is_had_at_once(inline: bool, asked: int) -> None:
    embed = Embedding(axis(0), at_once=inline)
    foresight = Foresight(World("sjf").gate, embed, lambda: 0.0, inline=inline)
    assert (await foresight.at_once() is not None) == inline
    assert embed.asked == asked


async def test_refining_what_has_ended_or_without_an_embedding_does_nothing() -> None:
    world = World("sjf")
    place = await (await world.enter("r"))
    before = place.ticket.prediction
    await Foresight(world.gate, Embedding(None), world.clock, inline=True).refine(place)
    assert place.ticket.prediction is before
    place.finish(DONE)
    await Foresight(world.gate, Embedding(axis(0)), world.clock, inline=True).refine(place)
    assert place.ticket.prediction is before
    world.assert_empty()


async def test_a_vector_of_another_shape_is_trouble_and_not_learnt() -> None:
    world = World("sjf")
    place = await (await world.enter("r"))
    await Foresight(world.gate, Embedding(np.ones(3, dtype=np.float32)), world.clock, inline=True).refine(place)
    place.finish(DONE)
    assert world.counts.troubles == ["ValueError"]
    assert len(world.gate.ranking.predictor.window) == 0


async def test_a_request_refined_is_the_one_admitted_with_its_embedding() -> None:
    """Same distribution, same rank, whenever the embedding came."""
    early, late = World("sagesched"), World("sagesched")
    for world in (early, late):
        taught(world)
    features = Features(max_tokens=500)
    asked = Request(id="r", prompt_tokens=30, arrival_s=early.clock(), features=features)
    known = early.gate.ranking.admit(asked, axis(1), early.clock())
    late.gate.ranking.admit(asked, None, late.clock())
    refined = late.gate.ranking.refine("r", axis(1))
    assert refined.rank[2:] == known.rank[2:]
    assert refined.score == known.score
    assert refined.prediction.distribution.tokens.tolist() == known.prediction.distribution.tokens.tolist()


async def test_an_embedding_that_comes_after_the_answer_is_learnt_from_all_the_same() -> None:
    world = World("sjf")
    slow = Embedding(axis(1), at_once=False)
    foresight = Foresight(world.gate, slow, world.clock, inline=False)
    place = await world.gate.enter(request(world, "r"), None, 1, foresight.embedding)
    foresight.refine_soon(place)
    await foresight.settle(place)
    place.finish(Outcome(output_tokens=77))
    world.assert_empty()
    window = world.gate.ranking.predictor.window
    assert len(window) == 0
    slow.may.set()
    while not len(window):
        await asyncio.sleep(0)
    assert window.output_tokens[0] == 77
    assert slow.asked == 1
