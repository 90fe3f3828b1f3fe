"""SchedulingService: Predict, Admit and Report (proto/sagesched/v1/scheduling.proto)."""

import asyncio
from collections import OrderedDict

import grpc
from google.protobuf.message import Message

from sagesched.request import Outcome, Request
from sagesched_pb.v1 import scheduling_pb2 as calls
from sagesched_sidecar.admission import Admission
from sagesched_sidecar.live import LiveSettings
from sagesched_sidecar.orders import OrderDesk
from sagesched_sidecar.rpc.asks import Asked, SubjectReader, checked_id, outcome_of
from sagesched_sidecar.rpc.board import Board
from sagesched_sidecar.rpc.failures import Failure, Violation, not_written
from sagesched_sidecar.rpc.methods import Context, Method, read, stream, unary
from sagesched_sidecar.rpc.predictions import predicted
from sagesched_sidecar.rpc.stay import Stay
from sagesched_sidecar.traffic import Traffic

NAME = calls.DESCRIPTOR.services_by_name["SchedulingService"].full_name
DOOR = f"/{NAME}/Admit"
FIRST_MESSAGE_S = 10.0
"""A stream that has asked for nothing by then is ended."""
REMEMBERED = 1000
"""Requests that have ended and whose reports may still be repeated."""


class Scheduling:
    """See the module."""

    def __init__(
        self, admission: Admission, desk: OrderDesk, traffic: Traffic, live: LiveSettings, *, dimensions: int
    ) -> None:
        self._admission = admission
        self._desk = desk
        self._traffic = traffic
        self._reader = SubjectReader(dimensions)
        self._board = Board(admission.gate.ranking.waiting, admission.clock)
        self._live = live
        self._streams = 0
        self._stays: dict[str, Stay] = {}
        self._ended: OrderedDict[str, Stay] = OrderedDict()
        self._taught: OrderedDict[str, asyncio.Task[bool]] = OrderedDict()

    def handler(self) -> grpc.GenericRpcHandler:
        """The service as the server takes it."""
        methods: dict[str, Method] = {
            "Predict": unary(self._predict, calls.PredictRequest),
            "Admit": stream(self._admit, calls.AdmitRequest),
            "Report": unary(self._report, calls.ReportRequest),
        }
        return grpc.method_handlers_generic_handler(NAME, methods)

    async def _predict(self, message: calls.PredictRequest) -> Message:
        asked = self._reader.read(message.subject)
        request = self._desk.preview(asked.ask, "", tenant=asked.tenant, arrival_s=self._admission.clock())
        embedding = asked.embedding
        if embedding is None and asked.text is not None:
            embedding = await self._admission.embedder.embed(asked.text)
        return predicted(*self._admission.predict(request, embedding))

    async def _admit(self, context: Context) -> None:
        if self._streams >= self._live.now.settings.grpc.max_streams:
            raise Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "streams-full", "too many Admit streams are open")
        self._streams += 1
        try:
            ask = await _first(context)
            with self._traffic.exchange():
                await self._admit_asked(ask, context)
        finally:
            self._streams -= 1

    async def _admit_asked(self, ask: calls.Ask, context: Context) -> None:
        asked = self._reader.read(ask.subject, "ask.subject")
        request = self._request(ask, asked)
        visit = self._admission.visit(
            request, asked.text, body_bytes=ask.ByteSize(), door=DOOR, embedding=asked.embedding
        )
        stay = self._stays[request.id] = Stay(visit, self._board, lambda: self._remember(request.id, stay))
        self._ended.pop(request.id, None)
        try:
            await stay.talk(context)
        except Failure as failure:
            self._admission.telemetry.rejected_for(failure.reason)
            raise

    def _request(self, ask: calls.Ask, asked: Asked) -> Request:
        try:
            wanted = checked_id(ask.request_id)
        except Violation as violation:
            raise Violation(f"ask.{violation.field}", violation.what) from None
        if wanted and self._desk.is_in_use(wanted):
            raise Failure(grpc.StatusCode.ALREADY_EXISTS, "id-in-use", f"request {wanted!r} waits or runs already")
        return self._desk.request(
            asked.ask, wanted, class_name=ask.class_name, arrival_s=self._admission.clock(), tenant=asked.tenant
        )

    def _remember(self, request_id: str, stay: Stay) -> None:
        """It has ended; its id may be used again, and its reports repeated."""
        self._desk.release(request_id)
        del self._stays[request_id]
        self._ended[request_id] = stay
        if len(self._ended) > REMEMBERED:
            self._ended.popitem(last=False)

    async def _report(self, message: calls.ReportRequest) -> Message:
        outcome = outcome_of(message.event)
        stay = self._stays.get(message.request_id) or self._ended.get(message.request_id)
        with self._traffic.exchange():
            if stay is not None:
                return calls.ReportResponse(learnt=await stay.apply(message.event))
            if not message.HasField("subject"):
                raise Failure(
                    grpc.StatusCode.NOT_FOUND,
                    "unknown-id",
                    "no Admit stream has that id; subject teaches history",
                )
            if outcome is None:
                raise Violation("event", "must be completion or departure where subject is given")
            checked_id(message.request_id)
            return calls.ReportResponse(learnt=await self._teach(message, outcome))

    async def _teach(self, message: calls.ReportRequest, outcome: Outcome) -> bool:
        """A request that was served elsewhere; one that is reported again by its id is learnt once."""
        asked = self._reader.read(message.subject)
        request = self._desk.preview(
            asked.ask, message.request_id, tenant=asked.tenant, arrival_s=self._admission.clock()
        )
        teaching = self._taught.get(request.id)
        if teaching is None:
            work = self._admission.teach(request, asked.text, asked.embedding, outcome)
            teaching = self._taught[request.id] = asyncio.ensure_future(work)
            teaching.add_done_callback(lambda done: done.cancelled() or done.exception())
            if len(self._taught) > REMEMBERED:
                self._taught.popitem(last=False)
        try:
            return await asyncio.shield(teaching)
        except Exception as error:  # whatever a journal raises
            raise not_written() from error


async def _first(context: Context) -> calls.Ask:
    try:
        message = await asyncio.wait_for(read(context), FIRST_MESSAGE_S)
    except TimeoutError:
        raise Failure(grpc.StatusCode.DEADLINE_EXCEEDED, "no-ask", "nothing was asked for in time") from None
    if not isinstance(message, calls.AdmitRequest) or not message.HasField("ask"):
        raise Violation("message", "must be ask in the first message of a stream")
    return message.ask
