"""The operator as a process before a real API server. No controller and no kubelet runs, so there are no pods."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from real_cluster import Cluster, until

SYSTEM = "sagesched"
POD_SET = {"model": "m", "replicas": 2, "engine": {"kind": "simulator"}}
IMAGES = ("--sidecar-image", "sidecar:1", "--simulator-image", "simulator:1", "--vllm-image", "vllm:1")
OWNED = "configmaps,serviceaccounts,services,statefulsets,poddisruptionbudgets"


class OperatorProcess:
    """Started as often as one likes; what it logs is in one file."""

    def __init__(self, cluster: Cluster, log: Path) -> None:
        self._cluster, self._log = cluster, log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        where = ("--defaults", f"{SYSTEM}/defaults", "--kubeconfig", str(self._cluster.kubeconfig))
        command = [sys.executable, "-m", "sagesched_operator", *IMAGES, *where, "--health-port", "0"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self) -> None:
        """As a lost machine would."""
        if self._process:
            self._process.kill()
            self._process.wait()

    def stop(self) -> int:
        """As Kubernetes does; its exit status."""
        assert self._process
        self._process.terminate()
        return self._process.wait(60)


class Scene:
    """A namespace with policies, and the operator."""

    def __init__(self, cluster: Cluster, namespace: str, operator: OperatorProcess) -> None:
        self.cluster, self.namespace, self.operator = cluster, namespace, operator

    def apply(self, name: str = "chat", **sections: Any) -> None:
        spec = {"podSet": POD_SET, **sections}
        body = {"apiVersion": "sagesched.io/v1alpha1", "kind": "SageSchedPolicy", "metadata": {"name": name}}
        query = "?fieldManager=tests&force=true"
        status, answer = self.cluster.ask("PATCH", self.path(name) + query, body | {"spec": spec}, APPLY)
        assert status in (200, 201), answer

    def path(self, name: str = "chat") -> str:
        return f"/apis/sagesched.io/v1alpha1/namespaces/{self.namespace}/sageschedpolicies/{name}"

    def condition(self, kind: str) -> tuple[str, str]:
        """Reason and message."""
        said = self.cluster.ask("GET", self.path())[1].get("status", {}).get("conditions", ())
        return next(((one["reason"], one["message"]) for one in said if one["type"] == kind), ("", ""))

    def settings(self, name: str = "chat") -> dict[str, Any]:
        status, found = self.cluster.ask("GET", f"/api/v1/namespaces/{self.namespace}/configmaps/{name}-settings")
        return json.loads(found["data"]["settings.json"])["stable"] if status == 200 else {}

    def scheduling(self, name: str = "chat") -> Any:
        return self.settings(name).get("scheduling")

    def owned(self) -> set[str]:
        """What the operator made, as kubectl names it."""
        label = ("-l", "app.kubernetes.io/name=sagesched", "-o", "name")
        return set(self.cluster.kubectl("-n", self.namespace, "get", OWNED, *label).split())


APPLY = "application/apply-patch+yaml"


@pytest.fixture(scope="module")
def operator(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    for path, made in (
        ("/api/v1/namespaces", {"metadata": {"name": SYSTEM}}),
        (
            f"/api/v1/namespaces/{SYSTEM}/configmaps",
            {"metadata": {"name": "defaults", "labels": {"app.kubernetes.io/name": "sagesched"}}},
        ),
    ):
        status, answer = cluster.ask("POST", path, made)
        assert status == 201, answer
    running = OperatorProcess(cluster, tmp_path_factory.mktemp("operator") / "log")
    running.start()
    yield running
    running.kill()


@pytest.fixture
def scene(cluster: Cluster, namespace: str, operator: OperatorProcess) -> Scene:
    return Scene(cluster, namespace, operator)


def wanted(*names: str) -> set[str]:
    """One of everything, for each policy."""
    kinds = ("service", "serviceaccount", "statefulset.apps", "poddisruptionbudget.policy")
    return {f"{kind}/{name}" for name in names for kind in kinds} | {f"configmap/{name}-settings" for name in names}


def test_a_policy_gets_all_that_it_stands_for_a_status_and_events_once(scene: Scene) -> None:
    scene.apply(scheduling={"bucketTokens": 200})
    until(lambda: scene.condition("Ready")[0] == "NoPodReady", "a status")
    assert scene.owned() == wanted("chat")
    assert scene.scheduling() == {"bucketTokens": 200}
    scene.apply(scheduling={"bucketTokens": 50})
    until(lambda: scene.scheduling() == {"bucketTokens": 50}, "the change")

    def reasons() -> list[str]:
        text = scene.cluster.kubectl("-n", scene.namespace, "get", "events", "-o", "jsonpath={.items[*].reason}")
        return sorted(text.split())

    until(lambda: reasons() == ["NoPodReady", "SettingsChanged", "SettingsChanged"], "its events")


def test_defaults_reach_every_policy_that_says_nothing_else_and_wrong_ones_none(scene: Scene) -> None:
    def set_defaults(text: str) -> None:
        path = f"/api/v1/namespaces/{SYSTEM}/configmaps/defaults"
        change = {"data": {"settings.yaml": text}}
        status, answer = scene.cluster.ask("PATCH", path, change, "application/merge-patch+json")
        assert status == 200, answer

    scene.apply(scheduling={"boost": 0.5})
    until(scene.settings, "the settings")
    set_defaults("scheduling: {bucketTokens: 77, boost: 0.1}")
    until(lambda: scene.scheduling() == {"bucketTokens": 77, "boost": 0.5}, "the defaults, under its own")
    set_defaults("scheduling: {bucketTokens: none}")
    until(lambda: scene.condition("ConfigResolved")[0] == "InvalidDefaults", "a wrong one is told")
    assert "defaults.scheduling.bucketTokens" in scene.condition("Ready")[1]
    assert scene.scheduling() == {"bucketTokens": 77, "boost": 0.5}, "the last good ones stay"
    set_defaults("{}")
    until(lambda: scene.condition("ConfigResolved")[0] == "ConfigResolved", "all is well again")


def test_a_setting_that_only_the_whole_shows_to_be_wrong_is_named_and_changes_nothing(scene: Scene) -> None:
    scene.apply()
    good = until(scene.settings, "the settings")
    scene.apply(engine={"mode": "priority"})
    until(lambda: scene.condition("ConfigResolved")[0] == "InvalidSetting", "a wrong one is told")
    assert "spec.engine.mode" in scene.condition("Ready")[1]
    assert scene.settings() == good


def test_operators_that_are_killed_at_any_moment_leave_one_of_everything(scene: Scene) -> None:
    names = ["p0", "p1", "p2"]
    for turn in range(6):
        scene.apply(names[turn % 3], scheduling={"bucketTokens": 100 + turn})
        scene.operator.kill()
        scene.operator.start()
    last = {name: {"bucketTokens": 103 + at} for at, name in enumerate(names)}
    until(lambda: {name: scene.scheduling(name) for name in names} == last, "the last change of each")
    until(lambda: scene.owned() == wanted(*names), "one of everything")


def test_what_happened_while_it_was_gone_is_done_at_its_return(scene: Scene) -> None:
    scene.apply()
    until(lambda: scene.owned() == wanted("chat"), "everything")
    assert scene.operator.stop() == 0
    scene.apply(scheduling={"bucketTokens": 9})
    scene.cluster.kubectl("-n", scene.namespace, "delete", "service/chat")
    scene.operator.start()
    until(lambda: scene.scheduling() == {"bucketTokens": 9}, "the change")
    until(lambda: scene.owned() == wanted("chat"), "the Service again")
