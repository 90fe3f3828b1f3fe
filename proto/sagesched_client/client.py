"""The connection to a sidecar."""

from types import TracebackType

import grpc

from sagesched_client.stay import Stay
from sagesched_pb.v1 import introspection_pb2, introspection_pb2_grpc, scheduling_pb2, scheduling_pb2_grpc
from sagesched_pb.v1.prediction_pb2 import Embedding, Features, Subject

OPTIONS: tuple[tuple[str, int], ...] = (
    # A sidecar that is gone without a word is found within 20 s.
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)


class Client:
    """`address`: `unix:/PATH` or `HOST:PORT`; `credentials` where the sidecar has a certificate."""

    def __init__(self, address: str, credentials: grpc.ChannelCredentials | None = None) -> None:
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(address, options=OPTIONS)
        else:
            self._channel = grpc.aio.secure_channel(address, credentials, options=OPTIONS)
        self.scheduling = scheduling_pb2_grpc.SchedulingServiceStub(self._channel)
        """The methods as they are on the wire."""
        self.introspection = introspection_pb2_grpc.IntrospectionServiceStub(self._channel)

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection; streams that are open end, and give their slots back."""
        await self._channel.close()

    def admit(
        self, subject: Subject, *, request_id: str = "", class_name: str = "", timeout_s: float | None = None
    ) -> Stay:
        """A turn for a request, to be used with `async with`. After `timeout_s` it ends, wherever it is."""
        call = self.scheduling.Admit(timeout=timeout_s)
        return Stay(call, scheduling_pb2.Ask(request_id=request_id, class_name=class_name, subject=subject))

    async def predict(self, subject: Subject) -> scheduling_pb2.PredictResponse:
        """The distribution of the length of an answer."""
        return await self.scheduling.Predict(scheduling_pb2.PredictRequest(subject=subject))

    async def report(
        self, event: scheduling_pb2.Event, *, request_id: str = "", subject: Subject | None = None
    ) -> bool:
        """What the engine did with a request. Whether history has a record of it, safe from a crash."""
        answer = await self.scheduling.Report(
            scheduling_pb2.ReportRequest(request_id=request_id, event=event, subject=subject)
        )
        return answer.learnt

    async def status(self) -> introspection_pb2.GetStatusResponse:
        """The sidecar now."""
        return await self.introspection.GetStatus(introspection_pb2.GetStatusRequest())

    async def explain(self, request_id: str) -> introspection_pb2.ExplainResponse:
        """Why a request stands, or stood, where it does."""
        return await self.introspection.Explain(introspection_pb2.ExplainRequest(request_id=request_id))


def subject(
    text: str = "",
    *,
    model: str = "",
    tenant: str = "",
    embedding: list[float] | None = None,
    prompt_tokens: int | None = None,
    max_tokens: int | None = None,
    choices: int = 1,
) -> Subject:
    """What is asked of the engine; the prompt's text or its embedding."""
    return Subject(
        model=model,
        tenant=tenant,
        text=text if embedding is None else None,  # type: ignore[arg-type]  # None leaves it out
        embedding=None if embedding is None else Embedding(values=embedding),
        prompt_tokens=prompt_tokens,
        features=Features(max_tokens=max_tokens, choices=choices),
    )
