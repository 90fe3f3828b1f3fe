"""IntrospectionService (proto/sagesched/v1/introspection.proto): status, the queue, one request."""

from collections.abc import Callable
from typing import Any

import grpc
import msgspec
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from sagesched.settings import dump
from sagesched.ticket import Ticket
from sagesched_pb.v1 import introspection_pb2 as calls
from sagesched_sidecar.admin import Admin
from sagesched_sidecar.gate import Gate
from sagesched_sidecar.rpc.failures import Failure, Violation
from sagesched_sidecar.rpc.methods import Method, unary
from sagesched_sidecar.rpc.predictions import levels, quantiles

NAME = calls.DESCRIPTOR.services_by_name["IntrospectionService"].full_name
PAGE_ROWS = 100
MAX_PAGE_ROWS = 1000


class Introspection:
    """See the module."""

    def __init__(self, admin: Admin, gate: Gate, clock: Callable[[], float]) -> None:
        self._admin = admin
        self._gate = gate
        self._clock = clock

    def handler(self) -> grpc.GenericRpcHandler:
        """The service as the server takes it."""
        methods: dict[str, Method] = {
            "GetStatus": unary(self._status, calls.GetStatusRequest),
            "ListQueue": unary(self._queue, calls.ListQueueRequest),
            "Explain": unary(self._explain, calls.ExplainRequest),
            "GetSettings": unary(self._settings, calls.GetSettingsRequest),
        }
        return grpc.method_handlers_generic_handler(NAME, methods)

    async def _status(self, _: calls.GetStatusRequest) -> Message:
        status, gate = self._admin.status(), self._gate.snapshot()
        return calls.GetStatusResponse(
            version=status["version"],
            settings_digest=status["settings_digest"],
            policy=status["policy"],
            draining=status["draining"],
            engine_reachable=status["engine"]["reachable"],
            waiting=gate.waiting,
            running=gate.running,
            slots=gate.slots or 0,
            oldest=_duration(gate.oldest_s),
            predicted_waiting_tokens=gate.predicted_waiting_tokens,
            history_rows=status["history_rows"],
            document_json=msgspec.json.encode(status).decode(),
        )

    async def _queue(self, message: calls.ListQueueRequest) -> Message:
        rows = message.page_size or PAGE_ROWS
        if rows > MAX_PAGE_ROWS:
            raise Violation("page_size", f"must be at most {MAX_PAGE_ROWS}")
        first = _first_row(message.page_token)
        waiting = self._gate.ranking.waiting()
        now_s, end = self._clock(), first + rows
        return calls.ListQueueResponse(
            rows=[_row(at, ticket, now_s) for at, ticket in enumerate(waiting[first:end], start=first + 1)],
            next_page_token=str(end) if end < len(waiting) else "",
            total=len(waiting),
        )

    async def _explain(self, message: calls.ExplainRequest) -> Message:
        found = self._admin.explanation(message.request_id)
        if found is None:
            raise Failure(grpc.StatusCode.NOT_FOUND, "unknown-id", "no such request waits, runs or ended lately")
        return _explained(found)

    async def _settings(self, _: calls.GetSettingsRequest) -> Message:
        now = self._admin.effective
        return calls.GetSettingsResponse(digest=now.digest, document_json=dump(now.settings).decode())


def _first_row(token: str) -> int:
    if not token:
        return 0
    if not (token.isascii() and token.isdecimal() and len(token) < 10):
        raise Violation("page_token", "must be next_page_token of the page before, or empty")
    return int(token)


def _row(position: int, ticket: Ticket, now_s: float) -> calls.QueueRow:
    return calls.QueueRow(
        request_id=ticket.request.id,
        position=position,
        class_name=ticket.request.class_name,
        age=_duration(now_s - ticket.request.arrival_s),
        predicted_tokens=ticket.prediction.distribution.mean(),
        index=ticket.score.amount,
        model=ticket.request.model,
    )


def _explained(found: dict[str, Any]) -> calls.ExplainResponse:
    rank = found["rank"]
    return calls.ExplainResponse(
        request_id=found["request_id"],
        phase=found["phase"],
        policy=found["policy"],
        source=found["source"],
        levels=levels(found["levels"]),
        neighbours=[calls.Neighbour(similarity=s, output_tokens=tokens) for s, tokens in found["neighbours"]],
        quantiles=quantiles({int(name[1:]) / 100: tokens for name, tokens in found["quantiles"].items()}),
        predicted_tokens=found["predicted_tokens"],
        remaining_tokens=found["mean_tokens"],
        mean_cost=found["mean_cost"],
        index=found["index"],
        rank=calls.Rank(priority=rank.priority, key=rank.key),
        ahead=found["ahead"],
        generated_tokens=found["generated_tokens"],
        ending=_ending(found.get("ended")),
    )


def _ending(ended: dict[str, Any] | None) -> calls.Ending | None:
    if ended is None:
        return None
    return calls.Ending(
        how=ended["how"],
        output_tokens=ended["output_tokens"],
        waited=_duration(ended["waited_s"]),
        total=_duration(ended["total_s"]),
    )


def _duration(seconds: float) -> Duration:
    duration = Duration()
    duration.FromNanoseconds(max(0, round(1e9 * seconds)))
    return duration
