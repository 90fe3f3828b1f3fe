"""From a function to a method of a service: bytes that do not decode, failures and bugs end a call in a known way."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError, Message

from sagesched_sidecar.rpc.failures import Failure, Violation, tell, violated

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
Method: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Request = TypeVar("Request", bound=Message)

_log = logging.getLogger(__name__)


class Undecodable:
    """Stands for a message whose bytes are not one."""


def unary(answer: Callable[[Request], Awaitable[Message]], request: type[Request]) -> Method:
    """One message in, one out."""

    async def method(message: Request | Undecodable, context: Context) -> Message | None:
        return await _ending(context, _answered(answer, message))

    return grpc.unary_unary_rpc_method_handler(method, _decoder(request), _encoded)


def stream(talk: Callable[[Context], Awaitable[None]], request: type[Request]) -> Method:
    """Messages both ways; `talk` reads them with `read` and writes them to the context."""

    async def method(_: object, context: Context) -> None:
        await _ending(context, talk(context))

    return grpc.stream_stream_rpc_method_handler(method, _decoder(request), _encoded)


async def read(context: Context) -> Message | None:
    """The next message of a stream; None once the client has closed its side. Raises Failure for other bytes."""
    message = await context.read()
    if message is grpc.aio.EOF:
        return None
    if isinstance(message, Undecodable):
        raise _not_a_message()
    assert isinstance(message, Message)
    return message


class Line:
    """A stream's answers, one write at a time, each finished whatever becomes of who wanted it: grpc can neither take
    two at once nor end a call in the middle of one."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._writing: asyncio.Task[None] | None = None

    async def write(self, message: Message) -> None:
        """Send it after what is being sent."""
        self._writing = asyncio.ensure_future(self._after(self._writing, message))
        self._writing.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(self._writing)

    async def quiet(self) -> None:
        """Wait until nothing is being sent."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def _after(self, earlier: "asyncio.Task[None] | None", message: Message) -> None:
        if earlier is not None:
            await asyncio.wait([earlier])
        await self._context.write(message)


async def _answered(answer: Callable[[Request], Awaitable[Message]], message: Request | Undecodable) -> Message:
    if isinstance(message, Undecodable):
        raise _not_a_message()
    return await answer(message)


Result = TypeVar("Result")


async def _ending(context: Context, work: Awaitable[Result]) -> Result | None:
    try:
        return await work
    except Failure as failure:
        await tell(context, failure)
    except Violation as violation:
        await tell(context, violated([violation]))
    except grpc.aio.BaseError:  # a message for a client that has gone meanwhile
        return None
    except Exception as error:  # a bug costs its own call, and says nothing of the message in the log
        _log.error("a gRPC call failed", extra={"problem": type(error).__name__})
        await tell(context, Failure(grpc.StatusCode.INTERNAL, "internal", "the sidecar failed on this call"))
    return None


def _decoder(request: type[Request]) -> Callable[[bytes], Request | Undecodable]:
    def decoded(data: bytes) -> Request | Undecodable:
        try:
            return request.FromString(data)
        except (DecodeError, ValueError, RecursionError):
            return Undecodable()

    return decoded


def _encoded(message: Message) -> bytes:
    return message.SerializeToString()


def _not_a_message() -> Failure:
    return Failure(grpc.StatusCode.INVALID_ARGUMENT, "bad-message", "the bytes are not the message of this method")
