"""The CRD on a real API server: what it takes, what it refuses and how it says so, and how it reads."""

from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from real_cluster import ROOT, Cluster

from sagesched_operator.rules import RULES

EXAMPLES = sorted((ROOT / "docs/examples").glob("*.yaml"))
POD_SET: dict[str, Any] = {"model": "m"}
TARGET = {"kind": "Deployment", "name": "engine"}
NAME = "p"
CHECKED = "?dryRun=All&fieldValidation=Strict"


def path(namespace: str, name: str = "") -> str:
    return f"/apis/sagesched.io/v1alpha1/namespaces/{namespace}/sageschedpolicies{name and '/' + name}"


def body(spec: Any, name: str = NAME) -> dict[str, Any]:
    return {"apiVersion": "sagesched.io/v1alpha1", "kind": "SageSchedPolicy", "metadata": {"name": name}, "spec": spec}


def tried(cluster: Cluster, namespace: str, spec: Any) -> tuple[int, str]:
    """The answer to a policy: a dry run, in which everything is checked."""
    status, answer = cluster.ask("POST", path(namespace) + CHECKED, body(spec))
    return status, answer.get("message", "")


def changed(cluster: Cluster, namespace: str, before: Any, *specs: Any) -> list[tuple[int, str]]:
    """The answers to changes of one policy, each a dry run."""
    status, there = cluster.ask("POST", path(namespace), body(before))
    assert status == 201, there
    answers = [cluster.ask("PUT", path(namespace, NAME) + CHECKED, there | {"spec": spec}) for spec in specs]
    return [(status, answer.get("message", "")) for status, answer in answers]


def of_pods(**fields: Any) -> dict[str, Any]:
    return {"podSet": POD_SET | fields}


def of_engine(**fields: Any) -> dict[str, Any]:
    return of_pods(engine=fields)


def with_section(**sections: Any) -> dict[str, Any]:
    return {"podSet": POD_SET, **sections}


class Case(NamedTuple):
    """A rule's message, a spec that keeps to it and one that breaks it; where the rule is about a change, from what."""

    message: str
    good: dict[str, Any]
    bad: dict[str, Any]
    before: dict[str, Any] | None = None


STORED = {"history": {"store": "embedded"}}
CASES = [
    Case("set exactly one of podSet", of_pods(), {"podSet": POD_SET, "targetRef": TARGET}),
    Case("set exactly one of podSet", {"selector": {"matchLabels": {"a": "b"}}}, {"scheduling": {"bucketTokens": 5}}),
    Case("cannot take one another's place", of_pods(replicas=2), {"targetRef": TARGET}, of_pods()),
    Case(
        "scheduling.maxWaitSeconds must not exceed",
        with_section(scheduling={"maxWaitSeconds": 20}, queue={"maxAgeSeconds": 20}),
        with_section(scheduling={"maxWaitSeconds": 20}, queue={"maxAgeSeconds": 19}),
    ),
    Case(
        "server.maxBodyBytes must not exceed",
        with_section(server={"maxBodyBytes": 4096}, queue={"maxBytes": 4096}),
        with_section(server={"maxBodyBytes": 4097}, queue={"maxBytes": 4096}),
    ),
    Case(
        "podSet.storage is for history.store", of_pods(storage={"size": "1Gi"}) | STORED, of_pods(storage={"size": 1})
    ),
    Case(
        "an objective may be listed in one class only",
        with_section(scheduling={"classes": [{"name": "a", "objectives": ["x"]}, {"name": "b", "objectives": ["y"]}]}),
        with_section(scheduling={"classes": [{"name": "a", "objectives": ["x"]}, {"name": "b", "objectives": ["x"]}]}),
    ),
    Case(
        "storeRows must not be below windowRows",
        with_section(history={"storeRows": 10, "windowRows": 10}),
        with_section(history={"storeRows": 9, "windowRows": 10}),
    ),
    Case(
        "model is required where kind is sentence-transformers",
        with_section(embedding={"kind": "sentence-transformers", "model": "m"}),
        with_section(embedding={"kind": "sentence-transformers"}),
    ),
    Case("has no effect elsewhere", with_section(embedding={"kind": "static"}), with_section(embedding={"model": "m"})),
    Case(
        "trustedProxies: each must be a network",
        with_section(gateway={"trustedProxies": ["10.0.0.0/8", "::1"]}),
        with_section(gateway={"trustedProxies": ["10.0.0.0/8", "everywhere"]}),
    ),
    Case("workload cannot be changed", of_pods(replicas=3), of_pods(workload="Deployment"), of_pods()),
    Case(
        "storage needs workload StatefulSet",
        of_pods(storage={"size": "1Gi"}) | STORED,
        of_pods(storage={"size": "1Gi"}, workload="Deployment") | STORED,
    ),
    Case(
        "storage cannot be changed",
        of_pods(storage={"size": "1Gi"}, replicas=2) | STORED,
        of_pods(storage={"size": "2Gi"}) | STORED,
        of_pods(storage={"size": "1Gi"}) | STORED,
    ),
    Case(
        "set gpus or resourceClaims",
        of_engine(resourceClaims=[{"name": "g", "resourceClaimTemplateName": "t"}]),
        of_engine(gpus=1, resourceClaims=[{"name": "g", "resourceClaimTemplateName": "t"}]),
    ),
    Case("the simulator has no use for a GPU", of_engine(gpus=1), of_engine(kind="simulator", gpus=1)),
    Case(
        "set value or secret",
        of_engine(env=[{"name": "A", "value": ""}, {"name": "B", "secret": {"name": "s", "key": "k"}}]),
        of_engine(env=[{"name": "A"}]),
    ),
    Case(
        "are the operator's to set",
        of_engine(args=["--max-num-seqs", "4"]),
        of_engine(args=["--port=9000"]),
    ),
    Case(
        "labels that begin with sagesched.io/",
        of_pods(pod={"labels": {"team": "a"}}),
        of_pods(pod={"labels": {"sagesched.io/policy": "x"}}),
    ),
]


def test_every_rule_is_tried() -> None:
    for rule in RULES:
        assert [case for case in CASES if case.message in rule.message], rule.message


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.message.replace(" ", "-"))
def test_a_rule_lets_what_keeps_to_it_pass_and_says_what_broke_it(cluster: Cluster, namespace: str, case: Case) -> None:
    if case.before is None:
        (good, praise), (bad, refusal) = (tried(cluster, namespace, spec) for spec in (case.good, case.bad))
    else:
        (good, praise), (bad, refusal) = changed(cluster, namespace, case.before, case.good, case.bad)
    assert good in (200, 201), praise
    assert bad == 422, refusal
    assert case.message in refusal


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("spec.podSet.model", {"podSet": {}}),
    ("spec.podSet.model", of_pods(model="")),
    ("spec.podSet.replicas", of_pods(replicas=-1)),
    ("spec.podSet.replicas", of_pods(replicas=1001)),
    ("spec.podSet.replicas", of_pods(replicas="two")),
    ("spec.podSet.workload", of_pods(workload="DaemonSet")),
    ("spec.podSet.drainSeconds", of_pods(drainSeconds=3601)),
    ("spec.podSet.modle", of_pods(modle="m")),
    ("spec.podSet.engine.kind", of_engine(kind="tgi")),
    ("spec.podSet.engine.image", of_engine(image="two words")),
    ("spec.podSet.engine.gpus", of_engine(gpus=65)),
    ("spec.podSet.engine.gpuResource", of_engine(gpuResource="gpu")),
    ("spec.podSet.engine.args", of_engine(args="--a")),
    ("spec.podSet.engine.env[0].name", of_engine(env=[{"value": "x"}])),
    ("spec.podSet.engine.env[0].name", of_engine(env=[{"name": "1A", "value": "x"}])),
    ("spec.podSet.engine.env[1]", of_engine(env=[{"name": "A", "value": "x"}, {"name": "A", "value": "y"}])),
    ("spec.podSet.engine.startupSeconds", of_engine(startupSeconds=5)),
    ("spec.podSet.engine.shutdownSeconds", of_engine(shutdownSeconds=-1)),
    ("spec.podSet.engine.resources.limits", of_engine(resources={"limits": {"memory": "much"}})),
    ("spec.podSet.engine.volumeMounts[0].mountPath", of_engine(volumeMounts=[{"name": "v", "mountPath": "models"}])),
    ("spec.podSet.apiKey.key", of_pods(apiKey={"name": "s"})),
    ("spec.podSet.apiKey.name", of_pods(apiKey={"name": "S_", "key": "k"})),
    ("spec.podSet.service.port", of_pods(service={"port": 0})),
    ("spec.podSet.service.type", of_pods(service={"type": "ExternalName"})),
    ("spec.podSet.storage.size", of_pods(storage={"size": "-1Gi"})),
    ("spec.podSet.pod.labels", of_pods(pod={"labels": {"a": 5}})),
    ("spec.podSet.pod.imagePullSecrets", of_pods(pod={"imagePullSecrets": ["No_"]})),
    ("spec.targetRef.kind", {"targetRef": {"kind": "DaemonSet", "name": "n"}}),
    ("spec.targetRef.name", {"targetRef": {"kind": "Deployment"}}),
    ("spec.selector.matchLabels", {"selector": {}}),
    ("spec.sidecar.imagePullPolicy", with_section(sidecar={"imagePullPolicy": "Sometimes"})),
    ("spec.sidecar.logLevel", with_section(sidecar={"logLevel": "trace"})),
    ("spec.sidecar.resources.requests", with_section(sidecar={"resources": {"requests": {"cpu": "a lot"}}})),
    ("spec.scheduling.policy", with_section(scheduling={"policy": "lifo"})),
    ("spec.scheduling.bucketTokens", with_section(scheduling={"bucketTokens": 0})),
    ("spec.scheduling.bucketTokens", with_section(scheduling={"bucketTokens": 1.5})),
    ("spec.scheduling.bucketToken", with_section(scheduling={"bucketToken": 5})),
    ("spec.scheduling.similarityThreshold", with_section(scheduling={"similarityThreshold": 1.1})),
    ("spec.scheduling.neighbours", with_section(scheduling={"neighbours": 0})),
    ("spec.scheduling.boost", with_section(scheduling={"boost": -0.1})),
    ("spec.scheduling.alpha", with_section(scheduling={"alpha": -1})),
    ("spec.scheduling.maxWaitSeconds", with_section(scheduling={"maxWaitSeconds": 0})),
    ("spec.scheduling.classes[0].name", with_section(scheduling={"classes": [{"priority": 1}]})),
    ("spec.scheduling.classes[0].weight", with_section(scheduling={"classes": [{"name": "a", "weight": 0}]})),
    ("spec.scheduling.classes[0].priority", with_section(scheduling={"classes": [{"name": "a", "priority": 1001}]})),
    ("spec.scheduling.classes[1]", with_section(scheduling={"classes": [{"name": "a"}, {"name": "a"}]})),
    ("spec.scheduling.shadow.policy", with_section(scheduling={"shadow": {"boost": 1}})),
    ("spec.history.store", with_section(history={"store": "redis"})),
    ("spec.history.windowRows", with_section(history={"windowRows": 0})),
    ("spec.history.path", with_section(history={"path": "/tmp"})),
    ("spec.embedding.kind", with_section(embedding={"kind": "bert"})),
    ("spec.embedding.deadlineSeconds", with_section(embedding={"deadlineSeconds": 61})),
    ("spec.queue.maxRequests", with_section(queue={"maxRequests": 0})),
    ("spec.queue.maxBytes", with_section(queue={"maxBytes": 1})),
    ("spec.engine.mode", with_section(engine={"mode": "auto"})),
    ("spec.engine.slots", with_section(engine={"slots": 0})),
    ("spec.engine.kvReserve", with_section(engine={"kvReserve": 1})),
    ("spec.engine.arguments", with_section(engine={"arguments": ["--a"]})),
    ("spec.gateway.tenantHeader", with_section(gateway={"tenantHeader": "a b"})),
    ("spec.server.maxBodyBytes", with_section(server={"maxBodyBytes": 1})),
    ("spec.server.drainSeconds", with_section(server={"drainSeconds": 5})),
    ("spec.grpc", with_section(grpc={"listen": []})),
]


@pytest.mark.parametrize(("field", "spec"), WRONG, ids=lambda value: value if isinstance(value, str) else "")
def test_a_wrong_field_is_refused_by_its_name(cluster: Cluster, namespace: str, field: str, spec: Any) -> None:
    status, message = tried(cluster, namespace, spec)
    assert status in (400, 422), message
    assert field in message


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda one: one.stem)
def test_every_example_is_taken(cluster: Cluster, namespace: str, example: Path) -> None:
    for document in yaml.safe_load_all(example.read_text("utf-8")):
        status, message = tried(cluster, namespace, document["spec"])
        assert status == 201, message


@pytest.mark.parametrize("name", ["7b", "a.b", "a" * 51])
def test_a_name_that_a_service_cannot_have_is_refused(cluster: Cluster, namespace: str, name: str) -> None:
    status, answer = cluster.ask("POST", path(namespace) + CHECKED, body(of_pods(), name))
    assert status == 422, answer
    assert "metadata.name" in answer["message"]


def test_the_server_fills_in_the_pods_and_no_setting(cluster: Cluster, namespace: str) -> None:
    status, made = cluster.ask("POST", path(namespace), body({"podSet": POD_SET}))
    assert status == 201, made
    assert made["spec"]["podSet"]["replicas"] == 1
    assert made["spec"]["podSet"]["engine"]["gpus"] == 0
    assert made["spec"]["sidecar"]["resources"]["requests"] == {"cpu": "500m", "memory": "512Mi"}
    assert "scheduling" not in made["spec"]


def test_scale_status_and_columns(cluster: Cluster, namespace: str) -> None:
    cluster.ask("POST", path(namespace), body(of_pods()))
    cluster.kubectl("-n", namespace, "scale", "ssp/p", "--replicas=3")
    status, scaled = cluster.ask("GET", path(namespace, NAME))
    assert scaled["spec"]["podSet"]["replicas"] == 3
    ready = {"type": "Ready", "status": "False", "reason": "NoPodReady", "message": "none"}
    times = {"observedGeneration": 1, "lastTransitionTime": "2026-01-01T00:00:00Z"}
    said = {"status": {"conditions": [ready | times], "mode": "gate", "pods": "1/3", "settingsDigest": "abc"}}
    status, answer = cluster.ask("PATCH", path(namespace, NAME) + "/status", said, "application/merge-patch+json")
    assert status == 200, answer
    header, row = cluster.kubectl("-n", namespace, "get", "ssp").splitlines()
    assert header.split() == ["NAME", "MODE", "PODS", "CONFIG", "READY", "REASON", "AGE"]
    assert row.split()[:6] == ["p", "gate", "1/3", "abc", "False", "NoPodReady"]


def test_explain_reads_well(cluster: Cluster) -> None:
    text = cluster.kubectl("explain", "ssp.spec.scheduling.bucketTokens")
    assert "Output tokens after which a running request's index is computed anew. Default: 200." in " ".join(
        text.split()
    )
