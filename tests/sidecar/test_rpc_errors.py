"""What is wrong is named, field by field; bytes that are no message cost their own call and nothing else."""

import asyncio
import contextlib
import logging
import random

import grpc
import numpy as np
import pytest
from gate_world import DIMENSIONS
from google.rpc import error_details_pb2
from grpc_status import rpc_status
from hall import Hall
from hypothesis import given
from hypothesis import strategies as st

from sagesched_client import Client, subject
from sagesched_pb.v1 import prediction_pb2 as wire
from sagesched_pb.v1 import scheduling_pb2 as calls
from sagesched_sidecar.rpc.asks import SubjectReader
from sagesched_sidecar.rpc.failures import Failure

METHODS = ("Predict", "Admit", "Report")
SECRET = "zanzibar-marmalade"
WROTE_TO_AN_ENDED_CALL = "Internal error from Core"
"""What grpc's own client makes of a write that the server's end of the call has overtaken."""


def details_of(error, kind):
    """The one detail of that kind, read as a client of google.rpc.Status reads it."""
    (found,) = [any_ for any_ in rpc_status.from_call(error).details if any_.Is(kind.DESCRIPTOR)]
    detail = kind()
    found.Unpack(detail)
    return detail


class Told:
    """A failed call, with what google.rpc's helpers want of it."""

    def __init__(self, error):
        self._error = error

    def code(self):
        return self._error.code()

    def details(self):
        return self._error.details()

    def trailing_metadata(self):
        return tuple(self._error.trailing_metadata())


async def failure_of(awaitable):
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await awaitable
    return caught.value


@pytest.fixture
async def rpc():
    hall = Hall(queue={"maxRequests": 1, "maxBytes": 4096})
    async with hall.door() as address, Client(address) as client, asyncio.timeout(60):
        client.hall = hall
        yield client


WRONG = [
    (subject(embedding=[1, 2]), ["subject.embedding.values"]),
    (subject(embedding=[0] * DIMENSIONS), ["subject.embedding.values"]),
    (subject(embedding=[float("nan")] * DIMENSIONS), ["subject.embedding.values"]),
    (subject("x", model="m" * 257), ["subject.model"]),
    (subject("x", choices=5000), ["subject.features.choices"]),
    (subject("x", model="m" * 257, tenant="t" * 257), ["subject.model", "subject.tenant"]),
    (subject("x", max_tokens=1 << 31), ["subject.features.max_tokens"]),
    (wire.Subject(features=wire.Features(asked_tokens=float("inf"))), ["subject.features.asked_tokens"]),
]


@pytest.mark.parametrize(("wrong", "fields"), WRONG)
async def test_every_field_that_is_wrong_is_named(rpc, wrong, fields):
    error = await failure_of(rpc.predict(wrong))
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    named = details_of(Told(error), error_details_pb2.BadRequest).field_violations
    assert [violation.field for violation in named] == fields
    assert all(violation.description for violation in named)


async def test_a_full_queue_says_when_to_try_again(rpc):
    async with rpc.admit(subject("x")) as runs, rpc.admit(subject("x")) as waits:
        await runs.turn()
        await anext(waits.places())
        async with rpc.admit(subject("x")) as third:
            error = await failure_of(third.turn())
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert details_of(Told(error), error_details_pb2.RetryInfo).retry_delay.seconds >= 1
    assert details_of(Told(error), error_details_pb2.ErrorInfo).reason == "queue-full"
    assert rpc.hall.value("rejected_total", reason="queue-full") == 1


async def test_a_drain_is_unavailable_to_who_comes_and_who_waits(rpc):
    async with rpc.admit(subject("x")) as runs, rpc.admit(subject("x")) as waits:
        await runs.turn()
        await anext(waits.places())
        rpc.hall.world.gate.close("draining")
        async with rpc.admit(subject("x")) as late:
            error = await failure_of(late.turn())
        assert error.code() is grpc.StatusCode.UNAVAILABLE
        assert details_of(Told(error), error_details_pb2.ErrorInfo).reason == "draining"
        rpc.hall.world.gate.refuse_waiting("draining")
        assert (await failure_of(waits.turn())).code() is grpc.StatusCode.UNAVAILABLE
        assert await runs.finish(2), "what runs goes on"


async def test_an_event_before_the_turn_is_a_failed_precondition(rpc):
    async with rpc.admit(subject("x")) as runs, rpc.admit(subject("x"), request_id="w") as waits:
        await runs.turn()
        await anext(waits.places())
        event = calls.Event(progress=calls.Progress(generated_tokens=1))
        assert (await failure_of(rpc.report(event, request_id="w"))).code() is grpc.StatusCode.FAILED_PRECONDITION
        await waits.progress(1)
        assert (await failure_of(waits.turn())).code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_ids_are_one_s_own(rpc):
    async with rpc.admit(subject("x"), request_id="r") as first:
        await first.turn()
        async with rpc.admit(subject("x"), request_id="r") as second:
            assert (await failure_of(second.turn())).code() is grpc.StatusCode.ALREADY_EXISTS
        async with rpc.admit(subject("x"), request_id="a b") as third:
            error = await failure_of(third.turn())
        assert details_of(Told(error), error_details_pb2.BadRequest).field_violations[0].field == "ask.request_id"


async def test_a_report_of_nobody_s_id_is_not_found(rpc):
    event = calls.Event(completion=calls.Completion(output_tokens=3))
    assert (await failure_of(rpc.report(event, request_id="nobody"))).code() is grpc.StatusCode.NOT_FOUND
    error = await failure_of(rpc.report(calls.Event(), request_id="nobody"))
    assert details_of(Told(error), error_details_pb2.BadRequest).field_violations[0].field == "event"


async def test_a_stream_begins_with_its_ask(rpc):
    call = rpc.scheduling.Admit()
    await call.write(calls.AdmitRequest(event=calls.Event()))
    assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
    call = rpc.scheduling.Admit()
    await call.done_writing()
    assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_message_beyond_the_bound_is_refused(rpc):
    error = await failure_of(rpc.predict(subject("x" * (5 << 20))))
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert (await rpc.predict(subject("x"))).source


async def test_a_bug_costs_its_own_call_and_tells_no_prompt(rpc, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)

    def broken(*_):
        raise RuntimeError(SECRET)

    monkeypatch.setattr(rpc.hall.admission, "predict", broken)
    error = await failure_of(rpc.predict(subject(SECRET)))
    assert error.code() is grpc.StatusCode.INTERNAL
    assert SECRET not in error.details()
    assert "a gRPC call failed" in caplog.text
    assert SECRET not in caplog.text


@given(st.binary(max_size=200))
def test_any_subject_is_read_whole_or_named(data):
    try:
        message = wire.Subject.FromString(data)
    except Exception:
        return
    try:
        asked = SubjectReader(DIMENSIONS).read(message)
    except Failure:
        return
    assert asked.ask.choices >= 1
    assert asked.embedding is None or np.isclose(np.linalg.norm(asked.embedding), 1, atol=1e-3)


@given(st.lists(st.floats(width=32), min_size=DIMENSIONS, max_size=DIMENSIONS))
def test_an_embedding_is_scaled_to_length_one_or_named(values):
    try:
        asked = SubjectReader(DIMENSIONS).read(wire.Subject(embedding=wire.Embedding(values=values)))
    except Failure:
        assert not np.isfinite(values).all() or not np.any(values)
        return
    assert np.isclose(np.linalg.norm(asked.embedding), 1, atol=1e-3)


def mutated(rng, message):
    data = bytearray(message.SerializeToString())
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(data) + 1)
        data[at : at + rng.randint(0, 2)] = rng.randbytes(rng.randint(0, 3))
    return bytes(data)


async def test_fuzzed_messages_end_in_a_known_way_and_leak_nothing(rpc):
    rng = random.Random(7)
    seeds = [
        calls.PredictRequest(subject=subject("hello", model="m", max_tokens=9)),
        calls.AdmitRequest(ask=calls.Ask(request_id="r", subject=subject(embedding=[1, 2, 3, 4]))),
        calls.AdmitRequest(event=calls.Event(completion=calls.Completion(output_tokens=5))),
        calls.ReportRequest(request_id="r", event=calls.Event(departure=calls.Departure(generated_tokens=3))),
        calls.ReportRequest(subject=subject("x"), event=calls.Event(completion=calls.Completion(output_tokens=3))),
    ]
    known = {"OK", "INVALID_ARGUMENT", "NOT_FOUND", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ALREADY_EXISTS"}
    seen = set()
    for _ in range(600):
        method = rng.choice(METHODS)
        data = rng.randbytes(rng.randint(0, 60)) if rng.random() < 0.3 else mutated(rng, rng.choice(seeds))
        path = f"/sagesched.v1.SchedulingService/{method}"
        if method == "Admit":
            call = rpc._channel.stream_stream(path)()
            for message in (data, mutated(rng, seeds[2])):
                try:
                    await call.write(message)
                except (asyncio.InvalidStateError, grpc.aio.AioRpcError):
                    break
            await call.done_writing()
        else:
            call = rpc._channel.unary_unary(path)(data)
        with contextlib.suppress(grpc.aio.AioRpcError):
            await (_drained(call) if method == "Admit" else call)
        if await call.details() != WROTE_TO_AN_ENDED_CALL:
            seen.add((await call.code()).name)
    assert seen <= known
    assert {"OK", "INVALID_ARGUMENT"} <= seen
    async with asyncio.timeout(20):
        while rpc.hall.world.gate.ranking.tickets():
            await asyncio.sleep(0.001)
    async with rpc.admit(subject("x")) as stay:
        await stay.turn()


async def _drained(call):
    async for _ in call:
        pass


async def test_an_end_told_before_the_turn_was_heard_is_heard(rpc):
    """Its ask and its end in one go: the answers come one after another."""
    for _ in range(20):
        call = rpc.scheduling.Admit()
        await call.write(calls.AdmitRequest(ask=calls.Ask(subject=subject("x"))))
        await call.write(calls.AdmitRequest(event=calls.Event(completion=calls.Completion(output_tokens=5))))
        with contextlib.suppress(grpc.aio.AioRpcError):
            await _drained(call)
        assert await call.code() in (grpc.StatusCode.OK, grpc.StatusCode.FAILED_PRECONDITION)
