"""One request's turn, from asking for it to its end."""

from collections.abc import AsyncIterator
from types import TracebackType
from typing import NamedTuple, TypeAlias

import grpc

from sagesched_pb.v1 import scheduling_pb2 as calls

AdmitCall: TypeAlias = "grpc.aio.StreamStreamCall[calls.AdmitRequest, calls.AdmitResponse]"


class Place(NamedTuple):
    """Where a request stands in the queue."""

    position: int
    """1 goes next."""
    predicted_tokens: float


class Stay:
    """`async with` gives the slot back however the block ends. Raises grpc.aio.AioRpcError where the sidecar refuses.

    Either iterate over `places()` or await `turn()`; then run the request and call `finish`, `leave` or `fail`.
    """

    def __init__(self, call: AdmitCall, ask: calls.Ask) -> None:
        self._call = call
        self._ask = ask
        self.request_id = ask.request_id
        """As the sidecar knows it; known from the first place, or the turn."""
        self.granted: calls.Granted | None = None

    async def __aenter__(self) -> "Stay":
        await self._call.write(calls.AdmitRequest(ask=self._ask))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call.cancel()

    async def places(self) -> AsyncIterator[Place]:
        """Where it stands, as that changes, until its turn."""
        while self.granted is None:
            told = await self._next()
            if told.HasField("queued"):
                self.request_id = told.queued.request_id
                yield Place(told.queued.position, told.queued.predicted_tokens)
            elif told.HasField("granted"):
                self.request_id, self.granted = told.granted.request_id, told.granted

    async def turn(self) -> calls.Granted:
        """Wait for the turn."""
        async for _ in self.places():
            pass
        assert self.granted is not None
        return self.granted

    async def progress(self, generated_tokens: int) -> None:
        """So many output tokens of one choice so far; every 16 or so is plenty."""
        await self._tell(calls.Event(progress=calls.Progress(generated_tokens=generated_tokens)))

    async def finish(self, output_tokens: int, *, prompt_tokens: int | None = None, censored: bool = False) -> bool:
        """The answer is whole, or `censored`: cut at a limit. Whether history has a record of it, safe from a crash."""
        done = calls.Completion(output_tokens=output_tokens, prompt_tokens=prompt_tokens, censored=censored)
        return await self._end(calls.Event(completion=done))

    async def leave(self, generated_tokens: int = 0) -> bool:
        """The request was given up after so many tokens. As `finish`."""
        return await self._end(calls.Event(departure=calls.Departure(generated_tokens=generated_tokens)))

    async def fail(self) -> None:
        """The engine failed; nothing is learnt."""
        await self._end(calls.Event(engine_failure=calls.EngineFailure()))

    async def _end(self, event: calls.Event) -> bool:
        await self._tell(event)
        while not (told := await self._next()).HasField("ended"):
            pass
        return told.ended.learnt

    async def _tell(self, event: calls.Event) -> None:
        await self._call.write(calls.AdmitRequest(event=event))

    async def _next(self) -> calls.AdmitResponse:
        told = await self._call.read()
        if isinstance(told, calls.AdmitResponse):
            return told
        raise ConnectionError("the stream has ended")
