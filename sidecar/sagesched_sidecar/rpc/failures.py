"""How a call fails: a code and, beside it, what a client can act on (google.rpc.Status with details)."""

from collections.abc import Sequence
from typing import Any

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message
from google.rpc import error_details_pb2 as details
from google.rpc.status_pb2 import Status

from sagesched_sidecar.gate import Refused

DOMAIN = "sagesched"
_CODES = {429: grpc.StatusCode.RESOURCE_EXHAUSTED, 503: grpc.StatusCode.UNAVAILABLE}


class Failure(Exception):
    """A call that ends with an error; raised anywhere in it, and told to the client at its edge (methods.py)."""

    def __init__(self, code: grpc.StatusCode, reason: str, message: str, *more: Message) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self._details = (details.ErrorInfo(reason=reason, domain=DOMAIN), *more)

    def status(self) -> Status:
        """The whole of it."""
        packed = []
        for detail in self._details:
            packed.append(AnyMessage())
            packed[-1].Pack(detail)
        return Status(code=self.code.value[0], message=str(self), details=packed)


class Violation(Exception):
    """One field of a message is wrong: its path, and what it should be."""

    def __init__(self, field: str, what: str) -> None:
        super().__init__(f"{field}: {what}")
        self.field = field
        self.what = what


def violated(violations: Sequence[Violation]) -> Failure:
    """The failure that names every field that is wrong."""
    fields = [details.BadRequest.FieldViolation(field=v.field, description=v.what) for v in violations]
    message = "; ".join(map(str, violations))
    return Failure(
        grpc.StatusCode.INVALID_ARGUMENT, "bad-request", message, details.BadRequest(field_violations=fields)
    )


def refused(refusal: Refused) -> Failure:
    """The gate's refusal: a full queue, a drain, a wait that was too long."""
    retry = details.RetryInfo(retry_delay=Duration(seconds=max(1, refusal.retry_after_s)))
    code = _CODES.get(refusal.status, grpc.StatusCode.UNAVAILABLE)
    return Failure(code, refusal.reason, str(refusal), retry)


def not_written() -> Failure:
    """History has the record, and the disk has not."""
    return Failure(grpc.StatusCode.INTERNAL, "not-written", "the record could not be written to disk")


async def tell(context: "grpc.aio.ServicerContext[Any, Any]", failure: Failure) -> None:
    """End the call with it; raises what grpc raises to end a call."""
    binary = failure.status().SerializeToString()
    await context.abort(failure.code, str(failure), (("grpc-status-details-bin", binary),))
