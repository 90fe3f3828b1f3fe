"""Shadow mode: requests go straight on, byte for byte; what our order would have done is worked out beside them.

Nothing is read, decoded or predicted before the request has gone to the engine; and then only once the answer's first
bytes are on their way to the client, or the engine has taken longer than a moment.
"""

import asyncio
from collections.abc import AsyncIterator

import aiohttp
from aiohttp import web

from sagesched_sidecar.admission import Admission, Visit
from sagesched_sidecar.errors import EngineGoneError, error_response
from sagesched_sidecar.exchange import CutError, answer_client, body_as_it_comes
from sagesched_sidecar.gate import Refused
from sagesched_sidecar.headers import to_client, to_engine
from sagesched_sidecar.live import LiveSettings
from sagesched_sidecar.meter import Meter
from sagesched_sidecar.orders import OrderDesk
from sagesched_sidecar.serving import EVENT_STREAM, PROGRESS_TOKENS, conclude, passage_of
from sagesched_sidecar.shadow_estimate import ShadowEstimate
from sagesched_sidecar.streams import Passage, Untouched
from sagesched_sidecar.surfaces import Surface
from sagesched_sidecar.upstream import Upstream

PREDICT_AFTER_SECONDS = 0.02
"""After a request was sent; an answer that begins earlier is not delayed by its prediction."""


class Shadow:
    """Handles requests in shadow mode."""

    def __init__(
        self,
        admission: Admission,
        upstream: Upstream,
        desk: OrderDesk,
        estimate: ShadowEstimate,
        live: LiveSettings,
        *,
        api_key: str | None,
    ) -> None:
        self.admission = admission
        self._upstream = upstream
        self.desk = desk
        self.estimate = estimate
        self.live = live
        self._api_key = api_key

    async def __call__(self, http: web.BaseRequest, surface: Surface) -> web.StreamResponse:
        """Pass one exchange on as it is."""
        watched = _Watched(self, http, surface)
        how = "left"
        try:
            headers = to_engine(http.raw_headers, api_key=self._api_key, levels=False)
            body = watched.body() if http.body_exists else None
            source = await self._upstream.open(http.method, http.raw_path, headers, body)
            try:
                answer = await self._pass_on(http, source, watched)
            finally:
                source.close()
            how = "answered"
            return answer
        except EngineGoneError as gone:
            how = "engine-error"
            self.admission.telemetry.rejected_for(gone.refusal.reason)
            return error_response(gone.refusal, anthropic=surface.anthropic)
        except CutError:
            how = "engine-error"
            return web.Response()
        except ConnectionError:
            return web.Response()
        finally:
            watched.end_soon(how)

    async def _pass_on(
        self, http: web.BaseRequest, source: aiohttp.ClientResponse, watched: "_Watched"
    ) -> web.StreamResponse:
        watched.begin(source)
        streams = source.content_type == EVENT_STREAM
        back = to_client(source.raw_headers, streams=streams, stripped=False, explain_id=None)
        return await answer_client(http, source, watched, back, begun=watched.begun, ended=_nothing_more)


class _Watched:
    """One exchange that is watched. It is the passage of the answer's bytes, and changes none."""

    def __init__(self, shadow: Shadow, http: web.BaseRequest, surface: Surface) -> None:
        self._shadow = shadow
        self._http = http
        self._surface = surface
        self._arrival_s = shadow.admission.clock()
        self._key = shadow.estimate.arrive(self._arrival_s)
        self._copy = bytearray()
        self._copied = True
        self._meter = Meter(surface, 1)
        self._passage: Passage = Untouched()
        self._refused = False
        self._visit: Visit | None = None
        self._looked_at = False
        self._timer: asyncio.TimerHandle | None = None
        self._next_progress = 1
        self._max_copied_bytes = shadow.live.now.settings.server.max_body_bytes

    async def body(self) -> AsyncIterator[bytes]:
        """The client's body as it comes; a copy of bounded size is kept."""
        async for chunk in body_as_it_comes(self._http):
            if self._copied:
                self._copy += chunk
                self._copied = len(self._copy) <= self._max_copied_bytes
            yield chunk
        self._timer = asyncio.get_running_loop().call_later(PREDICT_AFTER_SECONDS, self._look)

    def begin(self, source: aiohttp.ClientResponse) -> None:
        """The answer has begun."""
        self._refused = source.status >= 400
        self._passage = passage_of(source, self._meter, strips=False)

    def begun(self) -> None:
        """Its first bytes are on their way to the client."""
        asyncio.get_running_loop().call_soon(self._look)

    def feed(self, chunk: bytes) -> bytes:
        """The chunk itself."""
        out = self._passage.feed(chunk)
        if self._visit is not None and (generated := self._meter.generated_tokens) >= self._next_progress:
            self._next_progress = generated + PROGRESS_TOKENS
            self._visit.began()
            self._visit.progress(generated)
        return out

    def close(self) -> bytes:
        """Nothing is ever held."""
        return self._passage.close()

    def _look(self) -> None:
        """Decode the request and let the ranking have it."""
        if self._timer is not None:
            self._timer.cancel()
        if self._looked_at:
            return
        self._looked_at = True
        if not self._copied:
            return
        shadow = self._shadow
        order = shadow.desk.watch(self._http, self._surface, bytes(self._copy), self._arrival_s)
        self._copy = bytearray()
        self._meter.choices = order.ask.choices if order.ask else 1
        text = order.ask.prompt if order.ask else None
        visit = shadow.admission.visit(order.request, text, body_bytes=0, door=self._surface.path)
        try:
            visit.watch()
        except Refused:
            shadow.desk.release(order.request.id)
            return
        self._visit = visit
        visit.begun()

    def end_soon(self, how: str) -> None:
        """The exchange has ended. Who waits for this answer does not wait for what is learnt from it."""
        now_s = self._shadow.admission.clock()
        task = asyncio.get_running_loop().create_task(self._end(how, now_s))
        _ENDING.add(task)
        task.add_done_callback(_ENDING.discard)

    async def _end(self, how: str, now_s: float) -> None:
        self._look()
        shadow, visit = self._shadow, self._visit
        if visit is None:
            shadow.estimate.end(self._key, now_s, None)
            return
        try:
            await self._conclude(visit, how, now_s)
        finally:
            shadow.desk.release(visit.request.id)

    async def _conclude(self, visit: Visit, how: str, now_s: float) -> None:
        if how == "answered":
            await visit.settle()
        rank = self._shadow.admission.gate.ranking.rank_unstarted(visit.place.ticket)
        if how == "answered":
            conclude(visit, self._meter, refused=self._refused)
        elif how == "left":
            visit.leave(self._meter.generated_tokens)
        else:
            visit.fail()
        self._shadow.estimate.end(self._key, now_s, rank)


_ENDING: set["asyncio.Task[None]"] = set()
"""Ends under way: the event loop itself keeps no task alive."""


async def _nothing_more() -> None:
    """The end of an answer waits for nothing."""
