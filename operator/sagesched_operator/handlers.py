"""What the operator is told by kopf, and nothing else: every event becomes a policy to look at. No handler adds a
finalizer or an annotation, so nothing of a policy can hang when the operator is gone."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import kopf

from sagesched_operator.defaults import Defaults
from sagesched_operator.pods import POLICY_LABEL
from sagesched_operator.policy import GROUP, PLURAL, VERSION
from sagesched_operator.reconcile import Key

WATCH_SECONDS = 300
"""The longest that a watch lives; then it is opened anew."""
SELECTOR = "app.kubernetes.io/name=sagesched"
"""What the operator made has this label, and the ConfigMap of defaults must have it: nothing else is watched."""
WATCHED = (
    ("v1", "configmaps"),
    ("v1", "pods"),
    ("v1", "serviceaccounts"),
    ("v1", "services"),
    ("apps", "v1", "deployments"),
    ("apps", "v1", "statefulsets"),
    ("policy", "v1", "poddisruptionbudgets"),
)

Ask = Callable[[Key], None]


def register(registry: kopf.OperatorRegistry, ask: Ask, defaults: Defaults, heard: Callable[[], None]) -> None:
    """Subscribe to policies, to what they own, and to the ConfigMap of defaults."""
    known: set[Key] = set()

    @kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)
    async def policy(event: Mapping[str, Any], **_: Any) -> None:
        heard()
        key = _key(event)
        if event["type"] == "DELETED":
            known.discard(key)
        else:
            known.add(key)
            ask(key)

    async def owned(event: Mapping[str, Any], **_: Any) -> None:
        heard()
        if event["object"]["kind"] == "ConfigMap" and defaults.is_it(event["object"]):
            if defaults.take(None if event["type"] == "DELETED" else event["object"]):
                for key in sorted(known):
                    ask(key)
            return
        meta = event["object"]["metadata"]
        if (name := meta.get("labels", {}).get(POLICY_LABEL)) is not None:
            ask(Key(meta["namespace"], name))

    for resource in WATCHED:
        kopf.on.event(*resource, registry=registry, id="-".join(resource))(owned)

    @kopf.on.startup(registry=registry)
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        configure_kopf(settings)


def configure_kopf(settings: kopf.OperatorSettings) -> None:
    """Watches that end by themselves, nothing posted, no look at the cluster's CRDs and namespaces."""
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.watching.server_timeout = WATCH_SECONDS
    settings.watching.client_timeout = WATCH_SECONDS + 30
    settings.watching.connect_timeout = 15
    settings.networking.request_timeout = 30
    settings.queueing.worker_limit = 50
    for resource in WATCHED:
        settings.watching.label_selectors[resource] = SELECTOR
    logging.getLogger("kopf").setLevel(logging.WARNING)


def _key(event: Mapping[str, Any]) -> Key:
    meta = event["object"]["metadata"]
    return Key(meta["namespace"], meta["name"])
