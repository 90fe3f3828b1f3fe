"""The pod template: the engine, and the sidecar before it as a native sidecar. Pure."""

from typing import NamedTuple

from sagesched_operator.effective import HISTORY_PATH
from sagesched_operator.engine_container import (
    API_KEY_ENV,
    ENGINE_PORT,
    SIDECAR_PORT,
    Manifest,
    engine_container,
    from_secret,
    resources_of,
    restricted,
)
from sagesched_operator.pod_set import PodSet
from sagesched_operator.policy import Policy

POLICY_LABEL = "sagesched.io/policy"
SETTINGS_KEY = "settings.json"
_SETTINGS_FOLDER = "/etc/sagesched"
_LEAVE_SECONDS = 3
"""Between a pod's leaving the Service and the drain: kube-proxies hear of it in this time."""
_DRAIN = f"import os, signal, time; time.sleep({_LEAVE_SECONDS}); os.kill(1, signal.SIGTERM)"
_SPARE_SECONDS = 10


class Images(NamedTuple):
    """What the operator takes where a policy names no image."""

    sidecar: str
    vllm: str
    simulator: str

    def engine(self, pod_set: PodSet) -> str:
        """The image of a pod set's engine."""
        own = self.vllm if pod_set.engine.kind == "vllm" else self.simulator
        return pod_set.engine.image or own


def settings_name(policy_name: str) -> str:
    """The ConfigMap that the pods mount."""
    return f"{policy_name}-settings"


def labels_of(policy: Policy) -> dict[str, str]:
    """Of everything that the operator makes for a policy."""
    return {
        "app.kubernetes.io/name": "sagesched",
        "app.kubernetes.io/instance": policy.name,
        "app.kubernetes.io/managed-by": "sagesched-operator",
        POLICY_LABEL: policy.name,
    }


def pod_template(policy: Policy, pod_set: PodSet, images: Images) -> Manifest:
    """The template. Nothing that changes while pods run is in it: settings come by the mounted file."""
    pod = pod_set.pod
    spec: Manifest = {
        "serviceAccountName": policy.name,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": grace_seconds(pod_set),
        "securityContext": {"fsGroup": 10001, "seccompProfile": {"type": "RuntimeDefault"}} | pod.security_context,
        "initContainers": [_sidecar(policy, pod_set, images)],
        "containers": [engine_container(pod_set, images.engine(pod_set))],
        "volumes": [*_volumes(policy, pod_set), *pod.volumes],
    }
    optional: Manifest = {
        "nodeSelector": dict(pod.node_selector),
        "tolerations": list(pod.tolerations),
        "affinity": dict(pod.affinity),
        "topologySpreadConstraints": list(pod.topology_spread_constraints),
        "priorityClassName": pod.priority_class_name,
        "runtimeClassName": pod.runtime_class_name,
        "imagePullSecrets": [{"name": name} for name in pod.image_pull_secrets],
        "resourceClaims": [
            {"name": one.name, "resourceClaimTemplateName": one.resource_claim_template_name}
            for one in pod_set.engine.resource_claims
        ],
    }
    metadata = {"labels": pod.labels | labels_of(policy), "annotations": dict(pod.annotations)}
    return {"metadata": metadata, "spec": spec | {name: value for name, value in optional.items() if value}}


def grace_seconds(pod_set: PodSet) -> int:
    """The sidecar's drain, then the engine's end, and some to spare. All containers share it."""
    return _LEAVE_SECONDS + pod_set.drain_seconds + pod_set.engine.shutdown_seconds + _SPARE_SECONDS


def _sidecar(policy: Policy, pod_set: PodSet, images: Images) -> Manifest:
    """Starts by itself, whatever the engine does, for the engine starts only once its startup probe has passed."""
    sidecar = policy.spec.sidecar
    key = [from_secret(API_KEY_ENV, pod_set.api_key)] if pod_set.api_key else []
    everywhere = "0.0.0.0"  # noqa: S104
    flags = ["--upstream", f"http://127.0.0.1:{ENGINE_PORT}", "--host", everywhere, "--port", str(SIDECAR_PORT)]
    return {
        "name": "sagesched",
        "image": sidecar.image or images.sidecar,
        "imagePullPolicy": sidecar.image_pull_policy,
        "restartPolicy": "Always",
        "command": ["python3", "-m", "sagesched_sidecar"],
        "args": [*flags, "--settings", f"{_SETTINGS_FOLDER}/{SETTINGS_KEY}", "--log-level", sidecar.log_level],
        "env": [{"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, *key],
        "ports": [{"name": "http", "containerPort": SIDECAR_PORT, "protocol": "TCP"}],
        "resources": resources_of(sidecar.resources),
        "startupProbe": _probe("/healthz", periodSeconds=1, failureThreshold=60),
        "livenessProbe": _probe("/healthz", periodSeconds=10, failureThreshold=6, timeoutSeconds=5),
        "readinessProbe": _probe("/readyz", periodSeconds=2, failureThreshold=2, timeoutSeconds=2),
        "lifecycle": {"preStop": {"exec": {"command": ["python3", "-c", _DRAIN]}}},
        "securityContext": restricted(),
        "volumeMounts": [
            {"name": "sagesched-settings", "mountPath": _SETTINGS_FOLDER, "readOnly": True},
            {"name": "sagesched-history", "mountPath": HISTORY_PATH.rpartition("/")[0]},
            {"name": "sagesched-tmp", "mountPath": "/tmp"},  # noqa: S108
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def _probe(path: str, **times: int) -> Manifest:
    return {"httpGet": {"path": path, "port": "http"}, **times}


def _volumes(policy: Policy, pod_set: PodSet) -> list[Manifest]:
    history: list[Manifest] = [] if pod_set.storage else [{"name": "sagesched-history", "emptyDir": {}}]
    return [
        {"name": "sagesched-settings", "configMap": {"name": settings_name(policy.name)}},
        {"name": "sagesched-tmp", "emptyDir": {"medium": "Memory", "sizeLimit": "64Mi"}},
        *history,
    ]
