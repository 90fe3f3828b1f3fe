"""Settings that were given and change nothing, because of other settings beside them."""

from collections.abc import Callable
from typing import NamedTuple

from sagesched.engine_arguments import proves_mode
from sagesched.live import differences
from sagesched.settings import Scheduling, Settings

_NOBODY = "nobody is trusted: gateway.trustedProxies is empty"


class Idle(NamedTuple):
    """A field that has no effect, and why."""

    path: str
    why: str


def idle_fields(settings: Settings) -> tuple[Idle, ...]:
    """The fields that differ from their defaults and have no effect in the chosen policy and mode."""
    given = [change.path for change in differences(Settings(), settings)]
    found = ((path, RULES[path](settings)) for path in given if path in RULES)
    return tuple(Idle(path, why) for path, why in found if why)


def _bucket(settings: Settings) -> str | None:
    return "policy fcfs does not look at what was generated" if settings.scheduling.policy == "fcfs" else None


def _boost(settings: Settings) -> str | None:
    policy = settings.scheduling.policy
    return None if policy == "sagesched" else f"policy {policy} has no boost"


def _alpha(settings: Settings) -> str | None:
    policy = settings.scheduling.policy
    return f"policy {policy} does not look at the cost" if policy in ("fcfs", "sjf") else None


def _max_wait(settings: Settings) -> str | None:
    scheduling = settings.scheduling
    if scheduling.policy == "fcfs" and not _has_priorities(scheduling):
        return "policy fcfs without classes of several priorities always takes the oldest"
    return None


def _classes(settings: Settings) -> str | None:
    scheduling = settings.scheduling
    if scheduling.policy == "fcfs" and not _has_priorities(scheduling):
        return "policy fcfs does not look at weights, and no class has a priority"
    return None


def _deadline(settings: Settings) -> str | None:
    return "the static embedder does not wait" if settings.embedding.kind == "static" else None


def _store_rows(settings: Settings) -> str | None:
    return "history.store memory keeps nothing on a disk" if settings.history.store == "memory" else None


def _share_tenants(settings: Settings) -> str | None:
    return None if settings.gateway.trusted_proxies or settings.grpc.listen else _NOBODY


def _room(settings: Settings) -> str | None:
    mode = settings.engine.mode
    return None if mode == "gate" else f"in mode {mode} the sidecar holds no request back"


def _max_wait_in_mode(settings: Settings) -> str | None:
    if settings.engine.mode in ("priority", "engine"):
        return f"in mode {settings.engine.mode} what is in the engine keeps its place"
    return _max_wait(settings)


def _candidate(settings: Settings) -> str | None:
    mode = settings.engine.mode
    return None if mode == "gate" else f"in mode {mode} no request is chosen here, so there is no choice to compare"


def _preemption(settings: Settings) -> str | None:
    mode = settings.engine.mode
    return None if mode == "engine" else f"in mode {mode} no scheduler of ours is inside the engine"


def _preemption_rule(settings: Settings) -> str | None:
    if settings.engine.mode == "engine" and not settings.preemption.enabled:
        return "preemption.enabled is false"
    if settings.engine.mode == "engine" and settings.scheduling.policy == "fcfs":
        return "policy fcfs has no index to preempt by"
    return _preemption(settings)


def _queue_bounds(settings: Settings) -> str | None:
    return "in mode shadow nothing is refused" if settings.engine.mode == "shadow" else None


def _usage(settings: Settings) -> str | None:
    return "in mode shadow no body is changed" if settings.engine.mode == "shadow" else None


def _trial(settings: Settings) -> str | None:
    mode = settings.engine.mode
    if mode in ("gate", "shadow"):
        return f"mode {mode} asks nothing of the engine"
    return "engine.arguments show it already" if proves_mode(mode, settings.engine.facts) else None


def _tenant_header(settings: Settings) -> str | None:
    return None if settings.gateway.trusted_proxies else _NOBODY


def _has_priorities(scheduling: Scheduling) -> bool:
    return any(one.priority for one in scheduling.classes)


RULES: dict[str, Callable[[Settings], str | None]] = {
    "scheduling.bucketTokens": _bucket,
    "scheduling.boost": _boost,
    "scheduling.alpha": _alpha,
    "scheduling.maxWaitSeconds": _max_wait_in_mode,
    "scheduling.classes": _classes,
    "scheduling.shadow": _candidate,
    "preemption.enabled": _preemption,
    "preemption.hysteresis": _preemption_rule,
    "preemption.maxPerRequest": _preemption_rule,
    "preemption.watchdogSeconds": _preemption,
    "history.storeRows": _store_rows,
    "history.shareTenants": _share_tenants,
    "embedding.deadlineSeconds": _deadline,
    "queue.maxRequests": _queue_bounds,
    "queue.maxBytes": _queue_bounds,
    "queue.maxAgeSeconds": _room,
    "engine.extraSlots": _room,
    "engine.kvTokens": _room,
    "engine.kvReserve": _room,
    "engine.askForUsage": _usage,
    "engine.probe": _trial,
    "engine.force": _trial,
    "gateway.tenantHeader": _tenant_header,
}
"""By the field's path: why it is idle, None where it is not."""
