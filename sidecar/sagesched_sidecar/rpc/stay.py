"""One Admit stream: it waits, is told where it stands, has its turn, and gives the slot back however it ends."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration

from sagesched_pb.v1 import scheduling_pb2 as calls
from sagesched_sidecar.admission import Visit
from sagesched_sidecar.gate import Refused
from sagesched_sidecar.rpc.asks import outcome_of
from sagesched_sidecar.rpc.board import Board, Watch
from sagesched_sidecar.rpc.failures import Failure, Violation, not_written, refused
from sagesched_sidecar.rpc.methods import Context, Line, read


class Stay:
    """See the module. Events come by the stream and by Report; the first that ends the request counts.

    `gone` is called once, when its place in the gate is free for certain.
    """

    def __init__(self, visit: Visit, board: Board, gone: Callable[[], None]) -> None:
        self._visit = visit
        self._board = board
        self._gone = gone
        self._generated_tokens = 0
        self._ending: asyncio.Task[None] | None = None
        self._over: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._over.add_done_callback(_heard)

    async def talk(self, context: Context) -> None:
        """The stream from its ask to its end. Raises Failure; being cancelled gives the slot back."""
        line = Line(context)
        try:
            await self._talk(context, line)
        finally:
            await line.quiet()

    async def _talk(self, context: Context, line: Line) -> None:
        entering = _begun(self._visit.enter())
        telling = _begun(self._wait_and_tell(line, entering))
        hearing = _begun(self._hear(context))
        try:
            await _first_of(telling, hearing)
            if telling.done():
                telling.result()
                await _first_of(self._over, hearing)
            if hearing.done():
                hearing.result()
            if self._ending is not None:
                await line.write(calls.AdmitResponse(ended=calls.Ended(learnt=await self._learnt())))
        finally:  # nothing is awaited here: a call may be cancelled more than once
            for task in (entering, telling, hearing):
                task.cancel()
            entering.add_done_callback(self._leave)

    def _leave(self, _: "asyncio.Future[None]") -> None:
        """The stream has ended and the gate has let go of it, or it has had its turn."""
        if self._visit.has_turn:
            self._visit.leave(self._generated_tokens)
        self._gone()

    async def apply(self, event: calls.Event) -> bool:
        """What the engine did. Whether history holds a record of the request, which would survive a crash."""
        outcome_of(event)
        if not self._visit.has_turn:
            raise Failure(
                grpc.StatusCode.FAILED_PRECONDITION, "not-granted", "it waits still; close its stream to take it out"
            )
        if event.HasField("progress"):
            self._generated_tokens = max(self._generated_tokens, event.progress.generated_tokens)
            self._visit.progress(self._generated_tokens)
            return False
        if self._ending is None:
            self._ending = asyncio.ensure_future(self._end(event))
        return await self._learnt()

    async def _learnt(self) -> bool:
        try:
            return await asyncio.shield(self._over)
        except Exception as error:  # whatever a journal raises
            raise not_written() from error

    async def _end(self, event: calls.Event) -> None:
        try:
            self._over.set_result(await self._ended(event))
        except Exception as error:  # told to whoever waits for the end
            self._over.set_exception(error)

    async def _ended(self, event: calls.Event) -> bool:
        outcome = outcome_of(event)
        if outcome is None:
            self._visit.fail()
            return False
        await self._visit.settle()
        if event.HasField("completion"):
            self._visit.finish(outcome)
        else:
            self._visit.leave(outcome.output_tokens)
        return await self._visit.taught()

    async def _hear(self, context: Context) -> None:
        """The client's messages, until it closes its side or an event has ended the request."""
        while self._ending is None and (message := await read(context)) is not None:
            assert isinstance(message, calls.AdmitRequest)
            if not message.HasField("event"):
                raise Violation("message", "must be event: the request has been asked for already")
            await self.apply(message.event)

    async def _wait_and_tell(self, line: Line, entering: "asyncio.Future[None]") -> None:
        await asyncio.sleep(0)
        with self._board.watch(self._visit.request.id) as watch:
            while not entering.done():
                await self._tell_place(line, watch, entering)
        try:
            entering.result()
        except Refused as refusal:
            raise refused(refusal) from None
        await line.write(calls.AdmitResponse(granted=self._granted()))
        self._visit.begun()

    async def _tell_place(self, line: Line, watch: Watch, entering: "asyncio.Future[None]") -> None:
        """Wait until the place changes or the turn comes, and tell the place."""
        changing = asyncio.ensure_future(watch.changed.wait())
        try:
            await _first_of(entering, changing)
        finally:
            changing.cancel()
        if entering.done() or watch.position is None:
            return
        watch.changed.clear()
        place = calls.Queued(
            request_id=self._visit.request.id, position=watch.position, predicted_tokens=watch.predicted_tokens
        )
        await line.write(calls.AdmitResponse(queued=place))

    def _granted(self) -> calls.Granted:
        ticket = self._visit.place.ticket
        waited = Duration()
        waited.FromNanoseconds(round(1e9 * ((ticket.started_s or 0.0) - ticket.request.arrival_s)))
        return calls.Granted(
            request_id=ticket.request.id,
            waited=waited,
            predicted_tokens=ticket.prediction.distribution.mean(),
        )


async def _first_of(*waits: "asyncio.Future[Any]") -> None:
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)


def _begun(work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
    task = asyncio.get_running_loop().create_task(work)
    task.add_done_callback(_heard)
    return task


def _heard(done: "asyncio.Future[Any]") -> None:
    """Its error has its hearer, or none is left."""
    if not done.cancelled():
        done.exception()
