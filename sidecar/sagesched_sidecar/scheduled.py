"""One scheduled request, from its first byte to its last: read, wait, pass on, learn (when to embed: foresight.py)."""

import logging
from collections.abc import Callable

from aiohttp import web

from sagesched.history import Vector
from sagesched_sidecar.errors import EngineGoneError, Refusal, error_response
from sagesched_sidecar.exchange import BodyError, CutError, answer_client, read_body
from sagesched_sidecar.foresight import Foresight
from sagesched_sidecar.gate import Gate, Place, Refused
from sagesched_sidecar.headers import to_client, to_engine
from sagesched_sidecar.orders import Order, OrderDesk
from sagesched_sidecar.prompts import PromptEmbedder
from sagesched_sidecar.records import Record, Records
from sagesched_sidecar.serving import EVENT_STREAM, Ended, Serving
from sagesched_sidecar.surfaces import Surface
from sagesched_sidecar.telemetry import Telemetry
from sagesched_sidecar.upstream import Upstream

LOGGED_MODEL_CHARACTERS = 128

_log = logging.getLogger(__name__)


class Scheduler:
    """Handles scheduled requests; holds what they share."""

    def __init__(
        self,
        gate: Gate,
        upstream: Upstream,
        embedder: PromptEmbedder,
        desk: OrderDesk,
        telemetry: Telemetry,
        records: Records,
        *,
        max_body_bytes: int,
        api_key: str | None,
        clock: Callable[[], float],
    ) -> None:
        self._gate = gate
        self._upstream = upstream
        self._embedder = embedder
        self._desk = desk
        self._telemetry = telemetry
        self._records = records
        self._max_body_bytes = max_body_bytes
        self._api_key = api_key
        self._clock = clock

    async def __call__(self, http: web.BaseRequest, surface: Surface) -> web.StreamResponse:
        """Answer one request. Being cancelled is its client leaving: place freed, engine connection closed."""
        try:
            body = await read_body(http, self._max_body_bytes)
        except BodyError as error:
            return self._refuse(error.refusal, surface, None)
        order = self._desk.take(http, surface, body, self._clock())
        try:
            return await self._wait_and_serve(http, order)
        finally:
            self._desk.release(order)

    async def _wait_and_serve(self, http: web.BaseRequest, order: Order) -> web.StreamResponse:
        self._telemetry.overhead.observe(self._clock() - order.request.arrival_s)
        foresight = Foresight(self._gate, lambda: self._embedding(order), self._clock, inline=self._embedder.inline)
        try:
            embedding = await foresight.at_once() if self._gate.ranking.waiting_count else None
            place = await self._gate.enter(order.request, embedding, len(order.body), foresight.embedding)
        except Refused as refused:
            return self._refuse(_refusal(refused), order.surface, order.request.id)
        serving = Serving(order, place, lambda ended: self._note(order, place, foresight, ended))
        try:
            return await self._serve(http, order, serving, foresight)
        except EngineGoneError as gone:
            serving.end("engine-error")
            return self._refuse(gone.refusal, order.surface, order.request.id)
        except CutError:
            serving.end("engine-error")
            return web.Response()
        except ConnectionError:
            return web.Response()
        finally:
            serving.end("left")

    async def _embedding(self, order: Order) -> Vector | None:
        if order.ask is None:
            self._telemetry.troubled("body-undecodable")
            return None
        return await self._embedder.embed(order.ask.prompt)

    async def _serve(
        self, http: web.BaseRequest, order: Order, serving: Serving, foresight: Foresight
    ) -> web.StreamResponse:
        headers = to_engine(http.raw_headers, api_key=self._api_key, request_id=order.request.id)
        source = await self._upstream.open("POST", http.raw_path, headers, order.body)
        try:
            serving.begin(source)
            back = to_client(
                source.raw_headers,
                streams=source.content_type == EVENT_STREAM,
                stripped=serving.strips,
                explain_id=order.request.id,
            )

            async def answered() -> None:
                await foresight.settle(serving.place)
                serving.end("answered")

            return await answer_client(
                http, source, serving, back, begun=lambda: foresight.refine_soon(serving.place), ended=answered
            )
        finally:
            source.close()

    def _refuse(self, refusal: Refusal, surface: Surface, explain_id: str | None) -> web.Response:
        self._telemetry.rejected_for(refusal.reason)
        return error_response(refusal, anthropic=surface.anthropic, explain_id=explain_id)

    def _note(self, order: Order, place: Place, foresight: Foresight, ended: Ended) -> None:
        """What every request leaves behind once it has had its turn: counts, a record, a line in the log."""
        if foresight.seconds is not None:
            self._telemetry.predicted(place.ticket, foresight.seconds)
        self._telemetry.ended(ended)
        outcome, request = ended.outcome, order.request
        if outcome is not None and outcome.prompt_tokens is not None and order.ask is not None:
            self._desk.estimate.learn(request.model, len(order.ask.prompt), outcome.prompt_tokens)
        waited_s = (place.ticket.started_s or request.arrival_s) - request.arrival_s
        record = Record(
            ticket=place.ticket,
            how=ended.how,
            output_tokens=outcome.output_tokens if outcome else None,
            waited_s=waited_s,
            total_s=self._clock() - request.arrival_s,
        )
        self._records.add(record)
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("request ended", extra=_line(order, record))


def _refusal(refused: Refused) -> Refusal:
    what = "the request waited too long or its turn will not come" if refused.status == 503 else "the queue is full"
    return Refusal(refused.status, refused.reason, f"{what} ({refused.reason})", refused.retry_after_s)


def _line(order: Order, record: Record) -> dict[str, object]:
    return {
        "request_id": order.request.id,
        "path": order.surface.path,
        "model": order.request.model[:LOGGED_MODEL_CHARACTERS],
        "priority": order.request.priority,
        "how": record.how,
        "output_tokens": record.output_tokens,
        "waited_s": round(record.waited_s, 6),
        "total_s": round(record.total_s, 6),
    }
