"""The engine's container: vLLM, or the engine without a GPU. It listens on the pod's loopback interface, so that all
traffic goes by the sidecar."""

from typing import Any

from sagesched_operator.pod_set import EnvironmentVariable, PodSet, Resources, SecretKey

Manifest = dict[str, Any]

ENGINE_PORT, SIDECAR_PORT = 8000, 8080
API_KEY_ENV = "SAGESCHED_ENGINE_API_KEY"
_COMMANDS = {"vllm": ["vllm", "serve"], "simulator": ["python3", "-m", "sagesched_sim"]}
_NAMES_OF_KEY = {"vllm": "VLLM_API_KEY", "simulator": API_KEY_ENV}
_PROBE_SECONDS = 10
_WAIT_UNTIL_REACHED = (
    "import urllib.request as r; r.urlopen('http://127.0.0.1:{port}/health', timeout=4)"  # the kubelet cannot reach it
)
_WAIT_UNTIL_DRAINED = """
import socket, time
end = time.monotonic() + {seconds}
while time.monotonic() < end:
    try:
        socket.create_connection(('127.0.0.1', {port}), 1).close()
    except OSError:
        break
    time.sleep(0.5)
"""
"""The engine's end waits for the sidecar to have drained: containers get SIGTERM before native sidecars do."""


def command_line(pod_set: PodSet) -> list[str]:
    """The engine's command and arguments, as the sidecar reads them too."""
    return [*_COMMANDS[pod_set.engine.kind], *_arguments(pod_set)]


def _arguments(pod_set: PodSet) -> list[str]:
    own = ["--host", "127.0.0.1", "--port", str(ENGINE_PORT)]
    if pod_set.engine.kind == "vllm":
        return [pod_set.model, *own, *pod_set.engine.args]
    key = ["--api-key-env", API_KEY_ENV] if pod_set.api_key else []
    return ["--model", pod_set.model, *own, *key, *pod_set.engine.args]


def engine_container(pod_set: PodSet, image: str) -> Manifest:
    """The container; it alone asks for the GPU."""
    engine = pod_set.engine
    is_vllm = engine.kind == "vllm"
    container: Manifest = {
        "name": "engine",
        "image": image,
        "command": _COMMANDS[engine.kind],
        "args": _arguments(pod_set),
        "env": [*_own_variables(pod_set), *(_variable(one) for one in engine.env)],
        "resources": _with_gpus(pod_set),
        "startupProbe": {
            "exec": {"command": ["python3", "-c", _WAIT_UNTIL_REACHED.format(port=ENGINE_PORT)]},
            "periodSeconds": _PROBE_SECONDS if is_vllm else 2,
            "timeoutSeconds": 5,
            "failureThreshold": max(1, engine.startup_seconds // (_PROBE_SECONDS if is_vllm else 2)),
        },
        "lifecycle": {"preStop": {"exec": {"command": _drained_command(pod_set.drain_seconds)}}},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    if mounts := [_mount(one.name, one.mount_path, one.read_only) for one in engine.volume_mounts]:
        container["volumeMounts"] = mounts
    return container | ({} if is_vllm else {"securityContext": restricted()})


def restricted() -> Manifest:
    """What the restricted pod security standard asks of a container, and a root file system that is read only."""
    return {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def resources_of(resources: Resources) -> Manifest:
    """As a Pod has them."""
    parts = {"requests": dict(resources.requests), "limits": dict(resources.limits)}
    return {name: {key: str(value) for key, value in part.items()} for name, part in parts.items() if part}


def from_secret(name: str, secret: SecretKey) -> Manifest:
    """A variable whose value is a Secret's."""
    return {"name": name, "valueFrom": {"secretKeyRef": {"name": secret.name, "key": secret.key}}}


def _own_variables(pod_set: PodSet) -> list[Manifest]:
    found = []
    if pod_set.api_key is not None:
        found.append(from_secret(_NAMES_OF_KEY[pod_set.engine.kind], pod_set.api_key))
    if pod_set.hugging_face_token is not None:
        found.append(from_secret("HF_TOKEN", pod_set.hugging_face_token))
    return found


def _variable(one: EnvironmentVariable) -> Manifest:
    return from_secret(one.name, one.secret) if one.secret else {"name": one.name, "value": one.value or ""}


def _mount(name: str, path: str, read_only: bool) -> Manifest:
    return {"name": name, "mountPath": path} | ({"readOnly": True} if read_only else {})


def _with_gpus(pod_set: PodSet) -> Manifest:
    engine = pod_set.engine
    found = resources_of(engine.resources)
    if engine.gpus:
        for part in ("requests", "limits"):
            found[part] = found.get(part, {}) | {engine.gpu_resource: str(engine.gpus)}
    if engine.resource_claims:
        found["claims"] = [{"name": claim.name} for claim in engine.resource_claims]
    return found


def _drained_command(drain_s: int) -> list[str]:
    return ["python3", "-c", _WAIT_UNTIL_DRAINED.format(seconds=drain_s + 5, port=SIDECAR_PORT)]
