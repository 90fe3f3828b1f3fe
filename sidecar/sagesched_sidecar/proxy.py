"""The door: what is scheduled, what passes through, what the sidecar answers itself."""

from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

from sagesched_sidecar.engine_mode import EngineMode
from sagesched_sidecar.errors import EngineGoneError, Refusal, error_response
from sagesched_sidecar.exchange import CutError, answer_client, body_as_it_comes
from sagesched_sidecar.headers import to_client, to_engine
from sagesched_sidecar.streams import Untouched
from sagesched_sidecar.surfaces import SURFACES, Surface
from sagesched_sidecar.traffic import Traffic
from sagesched_sidecar.upstream import Upstream

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
ScheduledHandler = Callable[[web.BaseRequest, Surface], Awaitable[web.StreamResponse]]


class Proxy:
    """One request handler for the whole port."""

    def __init__(
        self,
        upstream: Upstream,
        scheduled: ScheduledHandler,
        own: Mapping[str, Handler],
        mode: EngineMode,
        *,
        api_key: str | None,
        rejected: Callable[[str], None],
        traffic: Traffic,
    ) -> None:
        self._upstream = upstream
        self._scheduled = scheduled
        self._own = own
        self._prefixes = [path for path in own if path.endswith("/")]
        self._mode = mode
        self._api_key = api_key
        self._rejected = rejected
        self._traffic = traffic

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        path = request.path
        own = self._own.get(path) or next((self._own[p] for p in self._prefixes if path.startswith(p)), None)
        if own is not None:
            return await own(request)
        with self._traffic.exchange():
            surface = SURFACES.get(path) if request.method == "POST" else None
            return await (self._pass(request) if surface is None else self._scheduled(request, surface))

    async def _pass(self, request: web.BaseRequest) -> web.StreamResponse:
        levels = self._mode.now.effective != "shadow"
        headers = to_engine(request.raw_headers, api_key=self._api_key, levels=levels)
        body = body_as_it_comes(request) if request.body_exists else None
        try:
            source = await self._upstream.open(request.method, request.raw_path, headers, body)
        except EngineGoneError as gone:
            return self._refuse(gone.refusal)
        try:
            streams = source.content_type == "text/event-stream"
            back = to_client(source.raw_headers, streams=streams, stripped=False, explain_id=None)
            return await answer_client(request, source, Untouched(), back, begun=_nothing, ended=_nothing_more)
        except (CutError, ConnectionError):
            return web.Response()
        finally:
            source.close()

    def _refuse(self, refusal: Refusal) -> web.Response:
        self._rejected(refusal.reason)
        return error_response(refusal)


def _nothing() -> None:
    """What passes through is not scheduled: nobody waits for its beginning,"""


async def _nothing_more() -> None:
    """nor for its end."""
