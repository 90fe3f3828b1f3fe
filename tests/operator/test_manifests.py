"""What is made for a policy."""

import json
from typing import Any

import pytest

from sagesched.revisions import decode_revisions
from sagesched.settings import digest
from sagesched_operator.effective import effective
from sagesched_operator.manifests import names_of, objects, settings_map
from sagesched_operator.pods import Images
from sagesched_operator.policy import Policy

Made = dict[str, dict[str, Any]]


@pytest.fixture
def make(images: Images) -> Any:
    def made(policy: Policy, defaults: dict[str, Any] | None = None) -> Made:
        assert policy.spec.pod_set
        settings = settings_map(policy, effective(defaults or {}, policy).document)
        return {one["kind"]: one for one in (settings, *objects(policy, policy.spec.pod_set, images))}

    return made


def pod_of(made: Made) -> dict[str, Any]:
    workload = made.get("StatefulSet") or made["Deployment"]
    return workload["spec"]["template"]["spec"]


def test_everything_is_owned_by_the_policy_and_in_its_namespace(make: Any, make_policy: Any) -> None:
    policy = make_policy({"replicas": 2})
    made = make(policy)
    assert list(made) == ["ConfigMap", "ServiceAccount", "Service", "StatefulSet", "PodDisruptionBudget"]
    assert {(one["kind"], one["metadata"]["name"]) for one in made.values()} == set(
        names_of(policy, policy.spec.pod_set)
    )
    for one in made.values():
        [owner] = one["metadata"]["ownerReferences"]
        assert owner["controller"]
        assert (owner["kind"], owner["name"], owner["uid"]) == ("SageSchedPolicy", "chat", "u-1")
        assert one["metadata"]["namespace"] == "team"


def test_the_settings_file_is_one_that_the_sidecar_takes_with_the_same_digest(make: Any, make_policy: Any) -> None:
    policy = make_policy(scheduling={"bucketTokens": 64, "classes": [{"name": "fast", "priority": -5}]})
    file = json.loads(make(policy)["ConfigMap"]["data"]["settings.json"])
    assert digest(decode_revisions(file).stable) == effective({}, policy).digest


@pytest.mark.parametrize(
    ("section", "fields"),
    [
        ("scheduling", {"bucketTokens": 50, "policy": "fcfs"}),
        ("queue", {"maxRequests": 5}),
        ("engine", {"slots": 3, "mode": "shadow"}),
        ("history", {"windowRows": 100}),
        ("gateway", {"tenantHeader": "x-team"}),
        ("server", {"explainToAll": True}),
        ("embedding", {"deadlineSeconds": 0.5}),
    ],
)
def test_no_setting_changes_the_pods(make: Any, make_policy: Any, section: str, fields: dict[str, Any]) -> None:
    plain, changed = make(make_policy()), make(make_policy(**{section: fields}))
    assert changed["StatefulSet"] == plain["StatefulSet"]
    assert changed["ConfigMap"]["data"] != plain["ConfigMap"]["data"]
    assert make(make_policy(), {section: fields})["StatefulSet"] == plain["StatefulSet"], "nor does a default"


def test_the_sidecar_starts_by_itself_and_is_the_only_way_in(make: Any, make_policy: Any) -> None:
    made = make(make_policy())
    [sidecar], [engine] = pod_of(made)["initContainers"], pod_of(made)["containers"]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["startupProbe"]["httpGet"]["path"] == "/healthz", "which says nothing of the engine"
    assert "127.0.0.1" in engine["args"]
    assert made["Service"]["spec"]["ports"][0]["targetPort"] == sidecar["ports"][0]["name"]
    assert not any("subPath" in mount for mount in sidecar["volumeMounts"]), "which the kubelet never updates"


@pytest.mark.parametrize("gpus", [0, 1, 8])
def test_the_engine_alone_asks_for_the_gpu(make: Any, make_policy: Any, gpus: int) -> None:
    made = make(make_policy({"engine": {"gpus": gpus}}))
    [engine] = pod_of(made)["containers"]
    assert engine["resources"].get("limits", {}).get("nvidia.com/gpu") == (str(gpus) if gpus else None)
    assert "gpu" not in json.dumps(pod_of(made)["initContainers"])


def test_claims_are_the_engine_s_too(make: Any, make_policy: Any) -> None:
    claim = {"name": "gpu", "resourceClaimTemplateName": "one-gpu"}
    pod = pod_of(make(make_policy({"engine": {"resourceClaims": [claim]}})))
    assert pod["resourceClaims"] == [claim]
    assert pod["containers"][0]["resources"]["claims"] == [{"name": "gpu"}]
    assert "claims" not in pod["initContainers"][0]["resources"]


def test_the_pods_have_no_token_no_service_variables_and_time_to_drain(make: Any, make_policy: Any) -> None:
    made = make(make_policy({"drainSeconds": 120, "engine": {"shutdownSeconds": 20}}))
    pod = pod_of(made)
    assert made["ServiceAccount"]["automountServiceAccountToken"] is False
    assert (pod["automountServiceAccountToken"], pod["enableServiceLinks"]) == (False, False)
    assert pod["terminationGracePeriodSeconds"] >= 120 + 20
    file = json.loads(made["ConfigMap"]["data"]["settings.json"])
    assert file["stable"]["server"]["drainSeconds"] == 120


def test_an_api_key_goes_to_both_containers_by_reference(make: Any, make_policy: Any) -> None:
    pod = pod_of(make(make_policy({"engine": {"kind": "vllm"}, "apiKey": {"name": "keys", "key": "engine"}})))
    references = [
        {
            one["name"]: one["valueFrom"]["secretKeyRef"]
            for one in container["env"]
            if "secretKeyRef" in one.get("valueFrom", {})
        }
        for container in (pod["containers"][0], pod["initContainers"][0])
    ]
    assert references == [
        {"VLLM_API_KEY": {"name": "keys", "key": "engine"}},
        {"SAGESCHED_ENGINE_API_KEY": {"name": "keys", "key": "engine"}},
    ]


def test_a_budget_only_where_it_blocks_no_drain(make: Any, make_policy: Any) -> None:
    assert "PodDisruptionBudget" not in make(make_policy({"replicas": 1}))
    assert make(make_policy({"replicas": 2}))["PodDisruptionBudget"]["spec"]["maxUnavailable"] == 1


def test_history_on_a_volume_of_its_own_or_for_as_long_as_the_pod_lives(make: Any, make_policy: Any) -> None:
    kept = make(make_policy({"storage": {"size": "1Gi"}}, history={"store": "embedded"}))["StatefulSet"]["spec"]
    assert kept["volumeClaimTemplates"][0]["spec"]["resources"] == {"requests": {"storage": "1Gi"}}
    names = [volume["name"] for volume in pod_of(make(make_policy(history={"store": "embedded"})))["volumes"]]
    assert "sagesched-history" in names
    assert "sagesched-history" not in [volume["name"] for volume in kept["template"]["spec"]["volumes"]]


def test_labels_of_the_user_do_not_take_the_place_of_the_operator_s(make: Any, make_policy: Any) -> None:
    made = make(make_policy({"pod": {"labels": {"team": "a", "sagesched.io/policy": "other"}}}))
    labels = made["StatefulSet"]["spec"]["template"]["metadata"]["labels"]
    assert (labels["team"], labels["sagesched.io/policy"]) == ("a", "chat")
    assert made["StatefulSet"]["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_a_deployment_where_it_is_asked_for(make: Any, make_policy: Any) -> None:
    made = make(make_policy({"workload": "Deployment"}))
    assert "StatefulSet" not in made
    assert "serviceName" not in made["Deployment"]["spec"]
