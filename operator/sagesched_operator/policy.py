"""SageSchedPolicy: its spec and status as typed values, read once. The CRD's schema is generated from these classes."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from sagesched import settings
from sagesched.settings import Section, SettingsError, readable
from sagesched_operator.pod_set import DnsName, Image, Labels, ObjectName, PodSet, Port, Resources

GROUP, VERSION, PLURAL, KIND = "sagesched.io", "v1alpha1", "sageschedpolicies", "SageSchedPolicy"
API_VERSION = f"{GROUP}/{VERSION}"


class Shared(NamedTuple):
    """A section that a policy shares with the settings file, but for fields that the operator sets by itself."""

    section: type[Section]
    not_in_policy: frozenset[str] = frozenset()
    """By name; a dot leads into a field that is an object."""


SHARED: Mapping[str, Shared] = {
    "scheduling": Shared(settings.Scheduling),
    "preemption": Shared(settings.Preemption),
    "history": Shared(
        settings.History, frozenset({"path", "seedFile", "tenant", "server.apiKeyFile", "server.caFile"})
    ),
    "embedding": Shared(settings.Embedding),
    "queue": Shared(settings.Queue),
    "engine": Shared(settings.Engine, frozenset({"arguments", "apiKeyFile", "apiKeyEnv"})),
    "gateway": Shared(settings.Gateway),
    "server": Shared(settings.Server, frozenset({"drainSeconds"})),
}
"""Left out: paths and variables inside the pod, the tenant, which is the namespace, the engine's arguments, and the
drain, which is the pods'."""
Overlay = dict[str, Any]
"""The fields of one section that somebody has set; the others have the defaults."""


class TargetRef(Section, frozen=True):
    """A workload that is there already. Not served by this version, which says so in the condition Accepted."""

    kind: Literal["Deployment", "StatefulSet", "LeaderWorkerSet"]
    """Its kind."""
    name: ObjectName
    """Its name, in the policy's namespace."""
    container: DnsName = "engine"
    """The engine's container in its pods."""
    port: Port = 8000
    """The port that the engine listens on."""


class Selector(Section, frozen=True):
    """Pods that are there already, by label. Not served by this version, which says so in the condition Accepted."""

    match_labels: Labels
    """Labels that all of them have."""
    container: DnsName = "engine"
    """The engine's container in them."""
    port: Port = 8000
    """The port that the engine listens on."""


class Sidecar(Section, frozen=True):
    """The sidecar's container. Changing it replaces the pods, once; settings never do."""

    image: Image | None = None
    """Its image; the operator's default when absent."""
    image_pull_policy: Literal["IfNotPresent", "Always", "Never"] = "IfNotPresent"
    """As in a Pod."""
    resources: Resources = Resources(requests={"cpu": "500m", "memory": "512Mi"}, limits={"memory": "1Gi"})
    """Its processors and memory. It has no GPU."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The least severe lines that it logs."""


class PolicySpec(Section, frozen=True):
    """What is asked for: pods of its own (podSet), or pods that are there already (targetRef or selector)."""

    pod_set: PodSet | None = None
    """Pods that the operator makes and owns."""
    target_ref: TargetRef | None = None
    """A workload that is there already."""
    selector: Selector | None = None
    """Pods that are there already, by label."""
    sidecar: Sidecar = Sidecar()
    """The sidecar's container."""
    scheduling: Overlay = {}
    """How requests are predicted and ordered."""
    preemption: Overlay = {}
    """When a scheduler inside the engine takes a running request's place away."""
    history: Overlay = {}
    """What is remembered of finished requests."""
    embedding: Overlay = {}
    """Which embedder turns a prompt into a unit vector."""
    queue: Overlay = {}
    """The bounds of what may wait."""
    engine: Overlay = {}
    """The engine behind the sidecar: who holds the order, its slots and its KV cache."""
    gateway: Overlay = {}
    """What is believed of headers that a gateway sets."""
    server: Overlay = {}
    """The sidecar's own port."""

    @property
    def overlay(self) -> dict[str, Overlay]:
        """What this policy sets of the settings file."""
        sections = {name: getattr(self, name) for name in SHARED}
        return {name: fields for name, fields in sections.items() if fields}


class Policy(NamedTuple):
    """One object as the API server has it."""

    namespace: str
    name: str
    uid: str
    generation: int
    spec: PolicySpec


def decode_policy(body: Mapping[str, Any]) -> Policy:
    """The policy of an object's body. Raises SettingsError whose message is `spec.path: what is wrong`."""
    meta = body["metadata"]
    try:
        spec = msgspec.convert(body.get("spec", {}), PolicySpec)
    except msgspec.ValidationError as error:
        raise SettingsError(f"spec.{readable(error)}") from None
    return Policy(meta["namespace"], meta["name"], meta["uid"], meta.get("generation", 0), spec)


ConditionStatus = Literal["True", "False", "Unknown"]


class Condition(Section, frozen=True):
    """One thing that holds, or does not, as of a generation."""

    type: Annotated[str, Meta(max_length=64)]
    """What it says: Accepted, ConfigResolved, SidecarsSynced, Dispatching or Ready."""
    status: ConditionStatus
    """True, False or Unknown."""
    reason: Annotated[str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z]+$")]
    """Why, in a word (docs/operator.md lists them)."""
    message: Annotated[str, Meta(max_length=4096)] = ""
    """Why, in a sentence, with the field's path where one is wrong."""
    observed_generation: Annotated[int, Meta(ge=0)] = 0
    """The generation of the spec that it is about."""
    last_transition_time: Annotated[str, Meta(max_length=64, extra_json_schema={"format": "date-time"})] = ""
    """When the status last changed."""


class PolicyStatus(Section, frozen=True):
    """What is so, as the operator last saw it."""

    observed_generation: Annotated[int, Meta(ge=0)] = 0
    """The generation of the spec that the operator last read."""
    conditions: Annotated[
        tuple[Condition, ...], Meta(max_length=16, extra_json_schema={"x-kubernetes-list-map-keys": ["type"]})
    ] = ()
    """What holds and what does not."""
    mode: Annotated[str, Meta(max_length=32)] = ""
    """engine.mode of the settings in effect."""
    settings_digest: Annotated[str, Meta(max_length=64)] = ""
    """Of the settings that the pods are to run."""
    pods: Annotated[str, Meta(max_length=32)] = ""
    """Pods whose sidecar runs these settings, of all pods: 2/3."""
    replicas: Annotated[int, Meta(ge=0)] = 0
    """Pods that there are."""
    ready_replicas: Annotated[int, Meta(ge=0)] = 0
    """Pods that are ready."""
    selector: Annotated[str, Meta(max_length=1024)] = ""
    """The pods' labels, for whoever scales the policy."""
