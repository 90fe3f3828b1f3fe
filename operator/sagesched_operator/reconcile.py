"""One policy, from the cluster as it is to the cluster as it should be: gather, plan, do. It may be called at any time,
as often as one likes, and begins anew each time; nothing is remembered between two calls but the defaults."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from sagesched.settings import SettingsError
from sagesched_operator.kube import Kube, KubeError, Object
from sagesched_operator.manifests import names_of
from sagesched_operator.plan import Event, Plan, plan, refuse
from sagesched_operator.pods import POLICY_LABEL, Images
from sagesched_operator.policy import API_VERSION, KIND, Policy, PolicyStatus, decode_policy
from sagesched_operator.seen import Seen, SeenPod
from sagesched_operator.sidecars import Sidecars

_log = logging.getLogger(__name__)


class Key(NamedTuple):
    """A policy's namespace and name."""

    namespace: str
    name: str


class Reconciler:
    """Holds the doors. `defaults` is asked anew each time; it raises SettingsError where the ConfigMap is wrong."""

    def __init__(
        self,
        kube: Kube,
        sidecars: Sidecars,
        images: Images,
        defaults: Callable[[], Mapping[str, Any]],
        clock: Callable[[], str],
    ) -> None:
        self._kube = kube
        self._sidecars = sidecars
        self._images = images
        self._defaults = defaults
        self._clock = clock

    async def reconcile(self, key: Key) -> float | None:
        """Do what is to be done; seconds until the next look, or None. Raises KubeError, after which it is to be called
        again."""
        body = await self._kube.get(KIND, key.namespace, key.name)
        if body is None or body["metadata"].get("deletionTimestamp"):
            return None  # what it owned goes by its owner references
        before = _status_of(body)
        made = await self._plan(body, before)
        await self._do(key, body, before, made)
        return made.look_again_s

    async def _plan(self, body: Object, before: PolicyStatus) -> Plan:
        now = self._clock()
        try:
            policy = decode_policy(body)
        except SettingsError as error:
            return refuse(body["metadata"].get("generation", 0), str(error), before, now)
        seen = await self._seen(policy)
        try:
            defaults: Mapping[str, Any] | SettingsError = self._defaults()
        except SettingsError as error:
            defaults = error
        return plan(policy, defaults, seen, self._images, before, now)

    async def _seen(self, policy: Policy) -> Seen:
        if policy.spec.pod_set is None:
            return Seen({})
        owned = {}
        for kind, name in names_of(policy, policy.spec.pod_set):
            if (found := await self._kube.get(kind, policy.namespace, name)) is not None:
                owned[(kind, name)] = found
        pods = await self._kube.list("Pod", policy.namespace, f"{POLICY_LABEL}={policy.name}")
        running = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
        answers = await self._sidecars.running([pod["status"].get("podIP") for pod in running])
        seen = (
            SeenPod(pod["metadata"]["name"], _is_ready(pod), answer)
            for pod, answer in zip(running, answers, strict=True)
        )
        return Seen(owned, tuple(seen))

    async def _do(self, key: Key, body: Object, before: PolicyStatus, made: Plan) -> None:
        """In this order, so that a status never says what was not done."""
        for one in made.apply:
            await self._kube.apply(one)
        for kind, name in made.delete:
            there = await self._kube.get(kind, key.namespace, name)
            if there is not None:
                await self._kube.delete(kind, key.namespace, name, there["metadata"]["uid"])
        if made.status != before:
            await self._kube.set_status(key.namespace, key.name, msgspec.to_builtins(made.status))
        for event in made.events:
            await self._tell(body, event)

    async def _tell(self, body: Object, event: Event) -> None:
        """An Event of the policy; one that cannot be written is no reason to do anything again."""
        try:
            await self._kube.create(event_of(body, event, self._clock()))
        except KubeError as error:
            _log.warning("an event was not written", extra={"problem": str(error)})


def event_of(body: Object, event: Event, now: str) -> dict[str, Any]:
    """As the API server takes it."""
    meta = body["metadata"]
    about = {"apiVersion": API_VERSION, "kind": KIND, "name": meta["name"], "namespace": meta["namespace"]}
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": meta["namespace"], "generateName": f"{meta['name']}-"},
        "regarding": about | {"uid": meta["uid"]},
        "type": event.type,
        "reason": event.reason,
        "note": event.message[:1024],
        "action": "Reconcile",
        "eventTime": now,
        "reportingController": "sagesched.io/operator",
        "reportingInstance": "sagesched-operator",
    }


def _status_of(body: Object) -> PolicyStatus:
    """The status as it was written last; an unreadable one, of another version, is written anew."""
    try:
        return msgspec.convert(body.get("status", {}), PolicyStatus)
    except msgspec.ValidationError:
        return PolicyStatus()


def _is_ready(pod: Object) -> bool:
    conditions = pod["status"].get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
