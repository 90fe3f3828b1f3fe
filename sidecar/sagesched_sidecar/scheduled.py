"""One scheduled HTTP request, from its first byte to its last: read, wait (admission.py), pass on, end."""

import time

from aiohttp import web

from sagesched.engine_priority import engine_priority
from sagesched.hint import Hint
from sagesched.ticket import Ticket
from sagesched_sidecar.admission import Admission
from sagesched_sidecar.engine_mode import EngineMode
from sagesched_sidecar.errors import EngineGoneError, Refusal, error_response
from sagesched_sidecar.exchange import BodyError, CutError, answer_client, read_body
from sagesched_sidecar.gate import Refused
from sagesched_sidecar.headers import to_client, to_engine
from sagesched_sidecar.live import LiveSettings
from sagesched_sidecar.orders import Order, OrderDesk
from sagesched_sidecar.serving import EVENT_STREAM, Serving
from sagesched_sidecar.shadow import Shadow
from sagesched_sidecar.surfaces import Surface
from sagesched_sidecar.telling import Told, placed
from sagesched_sidecar.upstream import Upstream


class Scheduler:
    """Handles scheduled requests; holds what they share."""

    def __init__(
        self,
        admission: Admission,
        upstream: Upstream,
        desk: OrderDesk,
        live: LiveSettings,
        mode: EngineMode,
        shadow: Shadow,
        *,
        api_key: str | None,
    ) -> None:
        self._admission = admission
        self._upstream = upstream
        self._desk = desk
        self._live = live
        self._mode = mode
        self._shadow = shadow
        self._api_key = api_key

    async def __call__(self, http: web.BaseRequest, surface: Surface) -> web.StreamResponse:
        """Answer one request. Being cancelled is its client leaving: place freed, engine connection closed."""
        mode = self._mode.now
        if mode.effective == "shadow":
            return await self._shadow(http, surface)
        try:
            body = await read_body(http, self._live.now.settings.server.max_body_bytes)
        except BodyError as error:
            return self._refuse(error.refusal, surface, None)
        order = self._desk.take(http, surface, body, self._admission.clock(), engine_orders=mode.leads_inside)
        try:
            return await self._wait_and_serve(http, order)
        finally:
            self._desk.release(order.request.id)

    async def _wait_and_serve(self, http: web.BaseRequest, order: Order) -> web.StreamResponse:
        text = order.ask.prompt if order.ask else None
        visit = self._admission.visit(order.request, text, body_bytes=len(order.body), door=order.surface.path)
        try:
            await visit.enter()
        except Refused as refused:
            return self._refuse(_refusal(refused), order.surface, order.request.id)
        serving = Serving(order, visit)
        try:
            return await self._serve(http, order, serving)
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

    async def _serve(self, http: web.BaseRequest, order: Order, serving: Serving) -> web.StreamResponse:
        told = self._told(order, serving.visit.place.ticket)
        headers = to_engine(
            http.raw_headers, api_key=self._api_key, request_id=order.request.id, priority=told.priority
        )
        source = await self._upstream.open("POST", http.raw_path, headers, told.body)
        try:
            serving.begin(source)
            back = to_client(
                source.raw_headers,
                streams=source.content_type == EVENT_STREAM,
                stripped=serving.strips,
                explain_id=order.request.id,
            )

            async def answered() -> None:
                await serving.visit.settle()
                serving.end("answered")

            return await answer_client(http, source, serving, back, begun=serving.visit.begun, ended=answered)
        finally:
            source.close()

    def _told(self, order: Order, ticket: Ticket) -> Told:
        """What goes to the engine: where the engine orders, with the place that the request has by now."""
        mode = self._mode.now
        if not mode.leads_inside:
            return Told(order.body)
        hint = None
        if mode.effective == "engine":
            age_s = self._admission.clock() - order.request.arrival_s
            hint = Hint.of(ticket.request, ticket.prediction.distribution, time.time() - age_s)
        return placed(
            order.body,
            order.document,
            in_body=order.surface.takes_place,
            priority=engine_priority(ticket.rank),
            hint=hint,
        )

    def _refuse(self, refusal: Refusal, surface: Surface, explain_id: str | None) -> web.Response:
        self._admission.telemetry.rejected_for(refusal.reason)
        return error_response(refusal, anthropic=surface.anthropic, explain_id=explain_id)


def _refusal(refused: Refused) -> Refusal:
    return Refusal(refused.status, refused.reason, str(refused), refused.retry_after_s)
