"""spec.podSet: the pods that the operator makes, as typed values. The CRD's schema is generated from these classes."""

from typing import Annotated, Any, Literal

from msgspec import Meta

from sagesched.settings import Section

Text = Annotated[str, Meta(max_length=4096)]
DnsName = Annotated[str, Meta(min_length=1, max_length=63, pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")]
ObjectName = Annotated[str, Meta(min_length=1, max_length=253, pattern=r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$")]
Image = Annotated[str, Meta(min_length=1, max_length=512, pattern=r"^[^\s]+$")]
Key = Annotated[str, Meta(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z0-9]+$")]
AbsolutePath = Annotated[str, Meta(min_length=1, max_length=1024, pattern=r"^/")]
Port = Annotated[int, Meta(ge=1, le=65_535)]
Labels = Annotated[dict[str, Annotated[str, Meta(max_length=63)]], Meta(max_length=32)]
Annotations = Annotated[dict[str, Text], Meta(max_length=32)]
AnyObject = Annotated[dict[str, Any], Meta(extra_json_schema={"x-kubernetes-preserve-unknown-fields": True})]
"""An object of the Pod API, which the API server checks when the pods are made."""
Quantity = Annotated[
    str | int,
    Meta(
        extra_json_schema={
            "x-kubernetes-int-or-string": True,
            "pattern": r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$",
        }
    ),
]
Quantities = Annotated[dict[str, Quantity], Meta(max_length=16)]


class Resources(Section, frozen=True):
    """What a container asks for and may use, as in a Pod."""

    requests: Quantities = {}
    """What the scheduler sets aside."""
    limits: Quantities = {}
    """What the container may use at most."""


class SecretKey(Section, frozen=True):
    """A key of a Secret in the policy's namespace; the operator never reads it, the pods do."""

    name: ObjectName
    """The Secret's name."""
    key: Key
    """The key in it."""


class EnvironmentVariable(Section, frozen=True):
    """A variable of the engine's environment, with a value of its own or a Secret's."""

    name: Annotated[str, Meta(min_length=1, max_length=253, pattern=r"^[-._a-zA-Z][-._a-zA-Z0-9]*$")]
    """Its name."""
    value: Text | None = None
    """Its value; not together with secret."""
    secret: SecretKey | None = None
    """The Secret's key that holds its value."""


class VolumeMount(Section, frozen=True):
    """A volume of podSet.pod.volumes in the engine's container."""

    name: DnsName
    """The volume's name."""
    mount_path: AbsolutePath
    """Where it appears."""
    read_only: bool = True
    """Whether the engine may not write there."""


class ResourceClaim(Section, frozen=True):
    """A claim of dynamic resource allocation, for the engine alone."""

    name: DnsName
    """Its name in the pod."""
    resource_claim_template_name: ObjectName
    """The ResourceClaimTemplate that it is made from, one for each pod."""


class Engine(Section, frozen=True):
    """The engine's container."""

    kind: Literal["vllm", "simulator"] = "vllm"
    """vLLM, or the engine without a GPU that comes with the project."""
    image: Image | None = None
    """Its image; the operator's default for that kind when absent."""
    args: Annotated[tuple[Text, ...], Meta(max_length=256)] = ()
    """Arguments beside those that the operator sets (model, host, port, and what the mode needs)."""
    env: Annotated[
        tuple[EnvironmentVariable, ...], Meta(max_length=64, extra_json_schema={"x-kubernetes-list-map-keys": ["name"]})
    ] = ()
    """Its environment."""
    resources: Resources = Resources()
    """Its processors and memory; the GPU is podSet.gpus."""
    gpus: Annotated[int, Meta(ge=0, le=64)] = 0
    """GPUs of the engine's container; the sidecar never asks for one."""
    gpu_resource: Annotated[str, Meta(min_length=3, max_length=253, pattern=r"^[a-z0-9.-]+/[a-zA-Z0-9._-]+$")] = (
        "nvidia.com/gpu"
    )
    """The name that the cluster has for a GPU."""
    resource_claims: Annotated[
        tuple[ResourceClaim, ...], Meta(max_length=16, extra_json_schema={"x-kubernetes-list-map-keys": ["name"]})
    ] = ()
    """Claims instead of gpus, where the cluster allocates devices by them."""
    volume_mounts: Annotated[
        tuple[VolumeMount, ...], Meta(max_length=32, extra_json_schema={"x-kubernetes-list-map-keys": ["mountPath"]})
    ] = ()
    """Volumes of podSet.pod.volumes in this container."""
    shutdown_seconds: Annotated[int, Meta(ge=0, le=3600)] = 30
    """Time that the engine gets to end by itself, after the drain."""
    startup_seconds: Annotated[int, Meta(ge=10, le=7200)] = 1800
    """Time to load the model, after which the kubelet starts the engine again."""


class Service(Section, frozen=True):
    """The Service before the pods; its target is the sidecar."""

    type: Literal["ClusterIP", "NodePort", "LoadBalancer"] = "ClusterIP"
    """As in a Service."""
    port: Port = 80
    """The port that clients use."""
    annotations: Annotations = {}
    """Annotations of the Service."""


class Storage(Section, frozen=True):
    """A volume of each pod for its history (history.store embedded), kept when the pod is replaced."""

    size: Quantity
    """How large it is."""
    storage_class_name: ObjectName | None = None
    """The StorageClass; the cluster's default when absent."""


class Pod(Section, frozen=True):
    """What all the pods have, beside the containers."""

    labels: Labels = {}
    """Labels beside the operator's own."""
    annotations: Annotations = {}
    """Annotations of the pods."""
    node_selector: Labels = {}
    """Labels of the nodes that may run them."""
    tolerations: Annotated[tuple[AnyObject, ...], Meta(max_length=32)] = ()
    """As in a Pod."""
    affinity: AnyObject = {}
    """As in a Pod."""
    topology_spread_constraints: Annotated[tuple[AnyObject, ...], Meta(max_length=8)] = ()
    """As in a Pod."""
    priority_class_name: ObjectName | None = None
    """A PriorityClass of the cluster (not one of scheduling.classes)."""
    runtime_class_name: ObjectName | None = None
    """A RuntimeClass of the cluster, as some GPU drivers need it."""
    image_pull_secrets: Annotated[tuple[ObjectName, ...], Meta(max_length=8)] = ()
    """Names of Secrets with which images are pulled."""
    volumes: Annotated[tuple[AnyObject, ...], Meta(max_length=32)] = ()
    """As in a Pod: models, caches, shared memory; engine.volumeMounts says where they appear."""
    security_context: AnyObject = {}
    """As in a Pod, over the operator's own."""


class PodSet(Section, frozen=True):
    """Pods with an engine each and the sidecar before it, made and owned by the operator."""

    model: Annotated[str, Meta(min_length=1, max_length=512)]
    """The model that the engine serves: a name, or a path in a volume."""
    workload: Literal["StatefulSet", "Deployment"] = "StatefulSet"
    """What holds the pods; cannot be changed later."""
    replicas: Annotated[int, Meta(ge=0, le=1000)] = 1
    """How many pods; the scale subresource changes it too."""
    engine: Engine = Engine()
    """The engine's container."""
    drain_seconds: Annotated[int, Meta(ge=0, le=3600)] = 30
    """Time that a pod that ends leaves to what waits and runs in it. Changing it replaces the pods, once."""
    api_key: SecretKey | None = None
    """The engine's API key; the engine asks for it and the sidecar sends it."""
    hugging_face_token: SecretKey | None = None
    """A token with which the engine loads the model (HF_TOKEN)."""
    service: Service = Service()
    """The Service before the pods."""
    storage: Storage | None = None
    """A volume for each pod's history; only for a StatefulSet, and cannot be changed later."""
    pod: Pod = Pod()
    """What all the pods have, beside the containers."""
