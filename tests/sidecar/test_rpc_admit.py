"""Admit and Report over a real server and a real client: turns, ends, and what gives a slot back."""

import asyncio
import contextlib

import grpc
import pytest
from hall import Hall, Pages

from sagesched.request import Outcome
from sagesched_client import Client, subject
from sagesched_pb.v1 import scheduling_pb2 as calls

LIMIT_S = 20


async def until(condition):
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.001)


def done(tokens):
    return calls.Event(completion=calls.Completion(output_tokens=tokens))


@contextlib.asynccontextmanager
async def opened(hall, **options):
    async with hall.door(**options) as address, Client(address) as client, asyncio.timeout(60):
        yield client


async def test_admit_watch_and_release():
    hall = Hall()
    async with opened(hall) as client, client.admit(subject("hello"), request_id="first") as first:
        await first.turn()
        seen = []

        async def second():
            async with client.admit(subject("hello"), request_id="second") as stay:
                async for place in stay.places():
                    seen.append(place.position)
                    asked.set()
                assert await stay.finish(3)

        asked = asyncio.Event()
        waits = asyncio.ensure_future(second())
        await asked.wait()
        assert hall.world.gate.snapshot().waiting == 1
        await first.progress(16)
        await until(lambda: hall.world.gate.ranking.explain("first").generated_tokens == 16)
        assert await first.finish(20, prompt_tokens=4)
        await waits
        assert seen == [1]
        assert hall.records.get("first").output_tokens == 20
    assert hall.ended() == {"answered": 2}
    hall.world.assert_empty()


async def test_those_who_wait_hear_how_they_move_up():
    hall = Hall()
    async with opened(hall) as client, client.admit(subject("x"), request_id="runs") as runs:
        await runs.turn()
        told = {"a": [], "b": []}

        async def waits(which, max_tokens):
            async with client.admit(subject("x", max_tokens=max_tokens), request_id=which) as stay:
                async for place in stay.places():
                    told[which].append(place.position)
                await until(lambda: told["b"][-1:] == [1])
                await stay.finish(1)

        crowd = [asyncio.ensure_future(waits("a", 2)), asyncio.ensure_future(waits("b", 8))]
        await until(lambda: told["a"][-1:] == [1] and told["b"][-1:] == [2])
        await runs.finish(1)
        await asyncio.gather(*crowd)
        assert told["b"] == [2, 1] or told["b"] == [1, 2, 1]
    hall.world.assert_empty()


async def read_all(call):
    """The answers, which have to be read before a client is told how the stream ended."""
    async for told in call:
        assert told.HasField("queued")


async def dropped_while_waiting(client):
    async with client.admit(subject("x")) as stay:
        await asyncio.wait_for(anext(stay.places()), LIMIT_S)


async def closed_while_waiting(client):
    call = client.scheduling.Admit()
    await call.write(calls.AdmitRequest(ask=calls.Ask(subject=subject("x"))))
    await call.done_writing()
    await read_all(call)
    assert await call.code() is grpc.StatusCode.OK


async def dropped_unheard(client):
    call = client.scheduling.Admit()
    await call.write(calls.AdmitRequest(ask=calls.Ask(subject=subject("x"))))
    call.cancel()


async def expired_while_waiting(client):
    call = client.scheduling.Admit(timeout=0.05)
    await call.write(calls.AdmitRequest(ask=calls.Ask(subject=subject("x"))))
    with pytest.raises(grpc.aio.AioRpcError, match="DEADLINE_EXCEEDED"):
        await read_all(call)


async def dropped_without_a_word(client):
    client.scheduling.Admit().cancel()


WAYS = [
    dropped_while_waiting,
    closed_while_waiting,
    dropped_unheard,
    expired_while_waiting,
    dropped_without_a_word,
]


@pytest.mark.parametrize("way", WAYS)
async def test_who_waits_and_goes_leaves_nothing(way):
    hall = Hall()
    async with opened(hall) as client, client.admit(subject("x"), request_id="runs") as runs:
        await runs.turn()
        await way(client)
        await until(lambda: not hall.world.gate.snapshot().waiting)
        await runs.finish(1)
        async with client.admit(subject("x")) as next_:
            await next_.turn()
    await until(lambda: not hall.world.gate.snapshot().running)
    hall.world.assert_empty()


async def half_close(stay, client):
    await stay._call.done_writing()


async def cancel(stay, client):
    stay._call.cancel()


async def close_the_connection(stay, client):
    await client.close()


@pytest.mark.parametrize("way", [half_close, cancel, close_the_connection])
async def test_a_slot_comes_back_however_its_stream_ends(way):
    hall = Hall()
    async with hall.door() as address, Client(address) as client, Client(address) as other:
        stay = await client.admit(subject("x"), request_id="r").__aenter__()
        await stay.turn()
        await stay.progress(7)
        await until(lambda: hall.world.gate.ranking.explain("r").generated_tokens == 7)
        await way(stay, client)
        async with asyncio.timeout(LIMIT_S), other.admit(subject("x")) as next_:
            await next_.turn()
            assert hall.ended() == {"left": 1}
            window = hall.world.gate.ranking.predictor.window
            assert (window.output_tokens[0], window.censored[0]) == (7, True)


async def test_a_deadline_after_the_turn_gives_the_slot_back():
    hall = Hall()
    async with opened(hall) as client:
        async with client.admit(subject("x"), timeout_s=0.2) as stay:
            await stay.turn()
            with pytest.raises(grpc.aio.AioRpcError, match="DEADLINE_EXCEEDED"):
                await stay._next()
        await until(lambda: not hall.world.gate.snapshot().running)
    hall.world.assert_empty()


async def test_a_thousand_dropped_streams_leak_no_slot():
    """Waiting and running, in every way that a stream can end, in bursts; then all slots are still there."""
    hall = Hall(engine={"slots": 4})
    async with opened(hall) as client:

        async def one(number):
            call = client.scheduling.Admit(timeout=0.02 if number % 5 == 4 else None)
            await call.write(calls.AdmitRequest(ask=calls.Ask(subject=subject("x", max_tokens=1 + number % 9))))
            if number % 5 == 1:
                await call.done_writing()
            elif number % 5 == 2:
                await call.read()
            elif number % 5 == 3:
                await asyncio.sleep(0)
            if number % 5 != 4:
                call.cancel()

        for burst in range(20):
            await asyncio.gather(*(one(50 * burst + k) for k in range(50)), return_exceptions=True)
        await until(lambda: not hall.admission.gate.ranking.tickets())
        hall.world.assert_empty()
        assert sum(hall.ended().values()) <= 1000
        stays = [await client.admit(subject("x")).__aenter__() for _ in range(4)]
        for stay in stays:
            await stay.turn()
        assert hall.world.gate.snapshot().running == 4
    await until(hall.traffic.idle.is_set)


async def test_a_completion_is_told_once_the_journal_has_it():
    journal = Pages()
    hall = Hall(journal)
    async with opened(hall) as client, client.admit(subject("x"), request_id="r") as stay:
        await stay.turn()
        reporting = asyncio.ensure_future(client.report(done(9), request_id="r"))
        await until(lambda: journal.writes)
        assert hall.world.gate.snapshot().running == 0, "the slot does not wait for the disk"
        again = asyncio.ensure_future(client.report(done(9), request_id="r"))
        await asyncio.sleep(0.05)
        assert not reporting.done()
        assert not again.done()
        journal.writes[0].set_result(None)
        assert await reporting
        assert await again
        assert (await stay._next()).ended.learnt
        assert await client.report(done(9), request_id="r"), "and after the stream's end"
    assert journal.written == [("r", Outcome(output_tokens=9))]
    assert hall.ended() == {"answered": 1}


async def test_a_record_that_was_not_written_is_an_error_and_no_success():
    journal = Pages()
    hall = Hall(journal)
    async with opened(hall) as client, client.admit(subject("x"), request_id="r") as stay:
        await stay.turn()
        reporting = asyncio.ensure_future(client.report(done(9), request_id="r"))
        await until(lambda: journal.writes)
        journal.writes[0].set_exception(OSError("gone"))
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await reporting
        assert caught.value.code() is grpc.StatusCode.INTERNAL
    hall.world.assert_empty()


@pytest.mark.parametrize("blocking", [False, True])
async def test_each_end_is_learnt_as_what_it_is(blocking):
    hall = Hall(blocking=blocking, engine={"slots": 4})
    async with opened(hall) as client:
        ends = {
            "whole": (lambda stay: stay.finish(9), True),
            "cut": (lambda stay: stay.finish(8, censored=True), True),
            "failed": (lambda stay: stay.fail(), None),
        }
        for which, (end, learnt) in ends.items():
            async with client.admit(subject("x"), request_id=which) as stay:
                await stay.turn()
                assert await end(stay) == learnt
    window = hall.world.gate.ranking.predictor.window
    assert sorted(zip(window.output_tokens[:2], window.censored[:2], strict=True)) == [(8, True), (9, False)]
    assert len(window) == 2
    assert hall.ended() == {"answered": 2, "engine-error": 1}


async def test_what_was_served_elsewhere_teaches_and_takes_no_slot():
    journal = Pages()
    hall = Hall(journal)
    async with opened(hall) as client:
        reporting = asyncio.ensure_future(client.report(done(77), subject=subject("hello", model="m")))
        await until(lambda: journal.writes)
        assert not reporting.done()
        journal.writes[0].set_result(None)
        assert await reporting
        left = calls.Event(departure=calls.Departure(generated_tokens=5))
        reporting = asyncio.ensure_future(client.report(left, subject=subject(embedding=[0, 3, 0, 0])))
        await until(lambda: len(journal.writes) == 2)
        journal.writes[1].set_result(None)
        assert await reporting
        known = await client.predict(subject("hello", model="m"))
    assert known.source in ("similar", "prior")
    assert known.levels[0].name == "similar"
    assert [outcome.output_tokens for _, outcome in journal.written] == [77, 5]
    assert hall.ended() == {}
    hall.world.assert_empty()


async def test_what_was_served_elsewhere_is_learnt_once_by_its_id():
    journal = Pages()
    hall = Hall(journal)
    async with opened(hall) as client:
        reports = [
            asyncio.ensure_future(client.report(done(77), request_id="once", subject=subject("hello")))
            for _ in range(2)
        ]
        await until(lambda: journal.writes)
        journal.writes[0].set_result(None)
        assert await asyncio.gather(*reports) == [True, True]
    assert journal.written == [("once", Outcome(output_tokens=77))]
    assert len(hall.world.gate.ranking.predictor.window) == 1


async def test_too_many_streams_are_refused():
    hall = Hall()
    async with opened(hall, max_streams=1) as client, client.admit(subject("x")) as stay:
        await stay.turn()
        call = client.scheduling.Admit()
        assert await call.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    await until(lambda: not hall.world.gate.snapshot().running)
    async with opened(hall) as client, client.admit(subject("x")) as stay:
        await stay.turn()
