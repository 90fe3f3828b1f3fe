"""What a gateway before the sidecar says of a request in its headers, and what of it is believed (docs/headers.md)."""

import hashlib
import ipaddress
import re
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from aiohttp import web

from sagesched.settings import Settings
from sagesched_sidecar.headers import CLASS

OBJECTIVES = ("x-llm-d-inference-objective", "x-gateway-inference-objective")
"""The second is the older name."""
FAIRNESS_ID = "x-llm-d-inference-fairness-id"
MODEL_REWRITE = "x-llm-d-model-name-rewrite"

Outcome = Literal["used", "unknown", "untrusted", "shortened"]
_PLAIN = re.compile(r"[!-~]{1,128}")
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Said(NamedTuple):
    """What counts of a request's headers."""

    class_name: str = ""
    """A listed class, or what the client called one; empty: none was named."""
    tenant: str = ""
    model: str | None = None
    """The model that the gateway chose; None: the body's is it."""


class Gateway:
    """Reads headers by the settings of now. `counted` is told of each header that was looked at."""

    def __init__(self, settings: Settings, counted: Callable[[str, Outcome], None]) -> None:
        self._counted = counted
        self.apply(settings)

    def apply(self, settings: Settings) -> None:
        """Other settings from now on."""
        self._by_objective = {name: c.name for c in settings.scheduling.classes for name in c.objectives}
        self._networks = [ipaddress.ip_network(text) for text in settings.gateway.trusted_proxies]
        self._tenant_headers = [FAIRNESS_ID, *filter(None, [settings.gateway.tenant_header])]
        self._served_models = settings.engine.facts.served_models

    def served(self, model: str) -> str:
        """The name by which history knows a model: of the engine's names for its one model, the first."""
        names = self._served_models
        return names[0] if names and (not model or model in names) else model

    def read(self, http: web.BaseRequest) -> Said:
        """What counts of this request's headers. A tenant and a model count only from a trusted proxy."""
        headers = http.headers
        model = self._first(headers, [MODEL_REWRITE])
        tenant = self._first(headers, self._tenant_headers)
        class_name = self._class_of(headers)
        if model is None and tenant is None:
            return Said(class_name)
        trusted = self._trusts(peer_of(http))
        return Said(class_name, self._believed(tenant, trusted) or "", self._believed(model, trusted))

    def _class_of(self, headers: Mapping[str, str]) -> str:
        """The class that the client names; else the one that its objective has."""
        named = headers.get(CLASS, "")
        objective = self._first(headers, OBJECTIVES)
        if objective is None or named:
            return named
        name, value = objective
        known = self._by_objective.get(value.strip())
        self._counted(name, "unknown" if known is None else "used")
        return known or ""

    def _first(self, headers: Mapping[str, str], names: "list[str] | tuple[str, ...]") -> tuple[str, str] | None:
        return next(((name, headers[name]) for name in names if headers.get(name)), None)

    def _believed(self, header: tuple[str, str] | None, trusted: bool) -> str | None:
        if header is None:
            return None
        name, value = header
        if not trusted:
            self._counted(name, "untrusted")
            return None
        plain = _PLAIN.fullmatch(value) is not None
        self._counted(name, "used" if plain else "shortened")
        return value if plain else "sha256:" + hashlib.sha256(value.encode("utf-8", "surrogateescape")).hexdigest()[:32]

    def _trusts(self, peer: str | None) -> bool:
        if peer is None or not self._networks:
            return False
        try:
            address = ipaddress.ip_address(peer.partition("%")[0])
        except ValueError:
            return False
        mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
        return any((mapped or address) in network for network in self._networks)


def peer_of(http: web.BaseRequest) -> str | None:
    """The address of whoever has the connection; None where it has none."""
    peer = http.transport.get_extra_info("peername") if http.transport else None
    return peer[0] if isinstance(peer, tuple) else None
