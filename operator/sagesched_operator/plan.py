"""What to do for one policy, from what was seen: objects to apply, objects to delete, the status, events. Pure; the
same cluster gives the same plan, so it may be made as often as anything changes."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from sagesched.settings import SettingsError
from sagesched_operator.conditions import Finding, conditions, ready_of
from sagesched_operator.effective import Effective, effective
from sagesched_operator.manifests import objects, settings_map
from sagesched_operator.pods import POLICY_LABEL, Images, settings_name
from sagesched_operator.policy import Condition, Policy, PolicyStatus
from sagesched_operator.seen import Manifest, Seen, SeenPod, uid_of_owner

LOOK_AGAIN_SECONDS = 2.0
"""Until every sidecar runs the settings: a change reaches a pod by the kubelet, which tells nobody."""


class Event(NamedTuple):
    """An Event of the policy."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str


class Plan(NamedTuple):
    """All that is to be done."""

    apply: tuple[Manifest, ...]
    delete: tuple[tuple[str, str], ...]
    """Kind and name of what the policy owned and needs no more."""
    status: PolicyStatus
    events: tuple[Event, ...] = ()
    look_again_s: float | None = None


def plan(
    policy: Policy,
    defaults: Mapping[str, Any] | SettingsError,
    seen: Seen,
    images: Images,
    before: PolicyStatus,
    now: str,
) -> Plan:
    """The plan; `defaults` may be what is wrong with them. Wrong settings change no setting: the pods go on with the
    last good ones, and scale as before."""
    pod_set = policy.spec.pod_set
    if pod_set is None:
        return _refused(policy.generation, before, now, _not_attached())
    taken = [name for name, one in seen.owned.items() if uid_of_owner(one) != policy.uid]
    if taken:
        kind, name = taken[0]
        what = f"{kind} {name} is there already and not this policy's; remove it, or give the policy another name"
        return _refused(policy.generation, before, now, [Finding("Accepted", "False", "NameTaken", what)])
    made = objects(policy, pod_set, images)
    try:
        if isinstance(defaults, SettingsError):
            raise defaults
        settings = effective(defaults, policy)
    except SettingsError as error:
        there = ("ConfigMap", settings_name(policy.name)) in seen.owned
        return _wrong_settings(policy, str(error), made if there else (), seen, before, now)
    return _accepted(policy, settings, made, seen, before, now)


def refuse(generation: int, problem: str, before: PolicyStatus, now: str) -> Plan:
    """Of a policy whose spec does not decode, which a CRD of another version may let through."""
    return _refused(generation, before, now, [Finding("Accepted", "False", "InvalidSpec", problem)])


def _not_attached() -> list[Finding]:
    what = "this version makes pods of its own (podSet) and attaches to none that are there already"
    return [Finding("Accepted", "False", "AttachingNotSupported", what)]


def _wrong_settings(
    policy: Policy, problem: str, made: Sequence[Manifest], seen: Seen, before: PolicyStatus, now: str
) -> Plan:
    reason: Literal["InvalidDefaults", "InvalidSetting"] = (
        "InvalidDefaults" if problem.startswith("defaults.") else "InvalidSetting"
    )
    findings = [
        Finding("Accepted", "True", "Accepted"),
        Finding("ConfigResolved", "False", reason, problem),
        _dispatching(policy, seen),
    ]
    status = _status(policy, findings, seen, None, before, now)
    return Plan(tuple(made), (), status, _events(before, status))


def _accepted(
    policy: Policy, settings: Effective, made: Sequence[Manifest], seen: Seen, before: PolicyStatus, now: str
) -> Plan:
    made = (settings_map(policy, settings.document), *made)
    kept = {(one["kind"], one["metadata"]["name"]) for one in made}
    findings = [
        Finding("Accepted", "True", "Accepted"),
        Finding("ConfigResolved", "True", "ConfigResolved", f"digest {settings.digest}"),
        _synced(seen.pods, settings.digest),
        _dispatching(policy, seen),
    ]
    status = _status(policy, findings, seen, settings, before, now)
    return Plan(
        apply=made,
        delete=tuple(key for key in seen.owned if key not in kept),
        status=status,
        events=_events(before, status),
        look_again_s=None if _is_at_rest(seen, settings) else LOOK_AGAIN_SECONDS,
    )


def _refused(generation: int, before: PolicyStatus, now: str, findings: list[Finding]) -> Plan:
    """Nothing is applied and nothing taken away."""
    said = conditions([*findings, ready_of(findings)], before.conditions, generation, now)
    status = msgspec.structs.replace(before, observed_generation=generation, conditions=said)
    return Plan((), (), status, _events(before, status))


def _synced(pods: Sequence[SeenPod], digest: str) -> Finding:
    refusing = [pod.name for pod in pods if pod.running and not pod.running.reload_ok]
    if refusing:
        what = f"{refusing[0]} does not take the settings file as it is now; its log and /sagesched/status say why"
        return Finding("SidecarsSynced", "False", "SettingsNotTaken", what)
    count = sum(_runs(pod, digest) for pod in pods)
    if count < len(pods):
        return Finding("SidecarsSynced", "False", "SettingsOnTheirWay", f"{count} of {len(pods)} pods run {digest}")
    if not pods:
        return Finding("SidecarsSynced", "True", "NoPods")
    return Finding("SidecarsSynced", "True", "SettingsInUse", f"all {count} pods run {digest}")


def _dispatching(policy: Policy, seen: Seen) -> Finding:
    assert policy.spec.pod_set is not None
    asked, ready = policy.spec.pod_set.replicas, sum(pod.ready for pod in seen.pods)
    if asked == 0:
        return Finding("Dispatching", "True", "NoPods", "no pods are asked for")
    if ready == 0:
        return Finding("Dispatching", "False", "NoPodReady", f"none of {asked} pods is ready")
    if ready < asked:
        return Finding("Dispatching", "False", "PodsNotReady", f"{ready} of {asked} pods are ready")
    return Finding("Dispatching", "True", "PodsReady", f"{ready} of {asked} pods are ready")


def _runs(pod: SeenPod, digest: str) -> bool:
    return pod.running is not None and pod.running.file_digest == digest


def _is_at_rest(seen: Seen, settings: Effective) -> bool:
    """Whether nothing is expected to change that no watch would tell."""
    return all(_runs(pod, settings.digest) for pod in seen.pods)


def _status(
    policy: Policy, findings: list[Finding], seen: Seen, settings: Effective | None, before: PolicyStatus, now: str
) -> PolicyStatus:
    """Without settings, what it says of them stays."""
    counted = msgspec.structs.replace(
        before,
        observed_generation=policy.generation,
        conditions=conditions([*findings, ready_of(findings)], before.conditions, policy.generation, now),
        replicas=len(seen.pods),
        ready_replicas=sum(pod.ready for pod in seen.pods),
        selector=f"{POLICY_LABEL}={policy.name}",
    )
    if settings is None:
        return counted
    synced = sum(_runs(pod, settings.digest) for pod in seen.pods)
    return msgspec.structs.replace(
        counted,
        mode=settings.settings.engine.mode,
        settings_digest=settings.digest,
        pods=f"{synced}/{len(seen.pods)}",
    )


def _events(before: PolicyStatus, after: PolicyStatus) -> tuple[Event, ...]:
    """Told once, when it becomes so."""
    found = []
    if before.settings_digest != after.settings_digest:
        what = f"settings {after.settings_digest} go to the pods' file; no pod is restarted"
        found.append(Event("Normal", "SettingsChanged", what))
    was, is_now = _ready(before), _ready(after)
    if is_now is not None and (was is None or (was.status, was.reason) != (is_now.status, is_now.reason)):
        kind: Literal["Normal", "Warning"] = "Warning" if is_now.reason in TROUBLE else "Normal"
        found.append(Event(kind, is_now.reason, is_now.message))
    return tuple(found)


def _ready(status: PolicyStatus) -> Condition | None:
    return next((one for one in status.conditions if one.type == "Ready"), None)


TROUBLE = frozenset(
    {"AttachingNotSupported", "InvalidDefaults", "InvalidSetting", "InvalidSpec", "NameTaken", "SettingsNotTaken"}
)
"""Reasons that somebody has to do something about."""
