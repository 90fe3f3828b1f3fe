"""A scheduled HTTP request decoded into what the scheduler needs of it. Its bytes stay as they are."""

import logging
import re
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec
from aiohttp import web
from msgspec.structs import replace

from sagesched.engine_priority import class_priority
from sagesched.features import features_of
from sagesched.request import Features, Request
from sagesched.settings import PriorityClass, class_of
from sagesched_sidecar.gateway import Gateway
from sagesched_sidecar.headers import REQUEST_ID
from sagesched_sidecar.live import LiveSettings
from sagesched_sidecar.meter import decoded
from sagesched_sidecar.prompts import TokenEstimate
from sagesched_sidecar.surfaces import Ask, Document, Surface
from sagesched_sidecar.telling import claims, levelled

LOGGED_CLAIM_CHARACTERS = 32

_log = logging.getLogger(__name__)
ACCEPTABLE_ID = re.compile(r"[!-~]{1,128}")


class Order(NamedTuple):
    """A request as it goes to the gate and then to the engine."""

    request: Request
    surface: Surface
    ask: Ask | None
    """None where the body is no JSON object: the engine answers it, and it waits its turn with a neutral rank."""
    body: bytes
    strips: bool
    """Whether `body` asks for a usage event that the client did not ask for."""
    document: Document | None = None
    """What `body` decodes to, but for that; kept only where the engine orders and the body is to say the place."""


class OrderDesk:
    """Makes orders; knows the ids in use and how long prompts are in tokens."""

    def __init__(
        self,
        live: LiveSettings,
        estimate: TokenEstimate,
        gateway: Gateway,
        *,
        unknown_class: Callable[[], None],
        claimed: Callable[[str], None] = lambda how: None,
    ) -> None:
        self._live = live
        self._unknown_class = unknown_class
        self._ids: set[str] = set()
        self._estimate = estimate
        self._gateway = gateway
        self._claimed = claimed

    def take(
        self, http: web.BaseRequest, surface: Surface, body: bytes, arrival_s: float, *, engine_orders: bool = False
    ) -> Order:
        """The order by the settings of now; its id is in use until `release`. `engine_orders`: its place is to be told
        in the body."""
        document = decoded(body)
        ask = _asked(surface, document)
        request = self._request_of(http, ask, arrival_s)
        asks_for_usage = ask is not None and self._live.now.settings.engine.ask_for_usage
        asking = surface.asking_for_usage(body, document) if asks_for_usage else None
        told = body if asking is None else asking
        if self._claims_a_place(document, http, request) and not engine_orders:
            told = levelled(told, document, class_priority(request.priority))
        return Order(request, surface, ask, told, asking is not None, document if engine_orders and ask else None)

    def watch(self, http: web.BaseRequest, surface: Surface, body: bytes, arrival_s: float) -> Order:
        """The order of a request that has gone to the engine as it is; its id is in use until `release`."""
        ask = _asked(surface, decoded(body))
        return Order(self._request_of(http, ask, arrival_s), surface, ask, b"", strips=False)

    def _request_of(self, http: web.BaseRequest, ask: Ask | None, arrival_s: float) -> Request:
        said = self._gateway.read(http)
        if ask is not None and (model := self._gateway.served(said.model or ask.model)) != ask.model:
            ask = msgspec.structs.replace(ask, model=model)
        wanted_id = http.headers.get(REQUEST_ID, "")
        return self.request(ask, wanted_id, class_name=said.class_name, arrival_s=arrival_s, tenant=said.tenant)

    def _claims_a_place(self, document: Any, http: web.BaseRequest, request: Request) -> bool:
        """Whether the client claims a place in the engine by itself; counted."""
        found = claims(document if isinstance(document, dict) else None, http.headers)
        for claim in found:
            self._claimed(claim.how)
            if _log.isEnabledFor(logging.DEBUG):
                _log.debug(
                    "a client's own priority does not count",
                    extra={"request_id": request.id, "how": claim.how, "said": claim.said[:LOGGED_CLAIM_CHARACTERS]},
                )
        return isinstance(document, dict) and bool(found)

    def request(
        self, ask: Ask | None, wanted_id: str, *, class_name: str, arrival_s: float, tenant: str = ""
    ) -> Request:
        """The request as the ranking sees it, whichever door it came by; its id is in use until `release`."""
        chosen = self._class_named(class_name)
        request = Request(
            id=self._id_for(wanted_id),
            model=ask.model if ask else "",
            tenant=self._live.now.settings.history.tenant_of(tenant),
            prompt_tokens=self._prompt_tokens(ask) if ask else 0,
            arrival_s=arrival_s,
            class_name=chosen.name,
            priority=chosen.priority,
            weight=chosen.weight,
            features=_features(ask) if ask else Features(),
        )
        self._ids.add(request.id)
        return request

    def preview(self, ask: Ask, request_id: str, *, tenant: str, arrival_s: float) -> Request:
        """A request that is not to be admitted, and so has no class. Without an id it gets one of its own."""
        return Request(
            id=request_id or uuid.uuid4().hex,
            model=ask.model,
            tenant=self._live.now.settings.history.tenant_of(tenant),
            prompt_tokens=self._prompt_tokens(ask),
            arrival_s=arrival_s,
            features=_features(ask),
        )

    def is_in_use(self, request_id: str) -> bool:
        """Whether a request of either door has that id."""
        return request_id in self._ids

    def release(self, request_id: str) -> None:
        """The request has ended."""
        self._ids.discard(request_id)

    def _prompt_tokens(self, ask: Ask) -> int:
        if ask.prompt_tokens is not None:
            return ask.prompt_tokens
        return self._estimate.tokens(ask.model, len(ask.prompt))

    def _class_named(self, name: str) -> PriorityClass:
        """The class that the client names; the one called default, or no class, where it names none that is listed."""
        name = name.strip().lower()
        chosen = class_of(self._live.now.settings.scheduling, name)
        if name and name != chosen.name:
            self._unknown_class()
        return chosen

    def _id_for(self, wanted: str) -> str:
        if ACCEPTABLE_ID.fullmatch(wanted) and not self.is_in_use(wanted):
            return wanted
        return uuid.uuid4().hex


def _asked(surface: Surface, document: Any) -> Ask | None:
    """What the client asks for; None where the body is not to be understood, which is the engine's to say."""
    if not isinstance(document, dict):
        return None
    try:
        return surface.ask(document)
    except Exception:  # a body of a form that nobody thought of costs its request a neutral rank, no more
        _log.warning("a body was not understood", extra={"path": surface.path})
        return None


def _features(ask: Ask) -> Features:
    found = features_of(ask.prompt, max_tokens=ask.max_tokens, choices=ask.choices, effort=ask.effort, tools=ask.tools)
    return found if ask.asked_tokens is None else replace(found, asked_number=ask.asked_tokens)
