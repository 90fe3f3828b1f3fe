"""The objects that a policy stands for. Pure: the same policy and settings give the same objects."""

import msgspec

from sagesched_operator.effective import Document
from sagesched_operator.engine_container import Manifest, resources_of
from sagesched_operator.pod_set import PodSet, Resources
from sagesched_operator.pods import POLICY_LABEL, SETTINGS_KEY, Images, labels_of, pod_template, settings_name
from sagesched_operator.policy import API_VERSION, KIND, Policy


def objects(policy: Policy, pod_set: PodSet, images: Images) -> tuple[Manifest, ...]:
    """All but the settings, in the order in which they are needed."""
    found = (service_account(policy), service(policy, pod_set), workload(policy, pod_set, images))
    return (*found, disruption_budget(policy)) if pod_set.replicas > 1 else found


def names_of(policy: Policy, pod_set: PodSet) -> tuple[tuple[str, str], ...]:
    """Kind and name of all that a policy may ever have, now or after a change."""
    kinds = ("ServiceAccount", "Service", pod_set.workload, "PodDisruptionBudget")
    return (("ConfigMap", settings_name(policy.name)), *((kind, policy.name) for kind in kinds))


def service_account(policy: Policy) -> Manifest:
    """An account without a token: no container of the pods talks to the API server."""
    return _object("v1", "ServiceAccount", policy, policy.name) | {"automountServiceAccountToken": False}


def settings_map(policy: Policy, document: Document) -> Manifest:
    """The file that the sidecars watch."""
    text = msgspec.json.format(msgspec.json.encode({"stable": document}, order="sorted")).decode()
    return _object("v1", "ConfigMap", policy, settings_name(policy.name)) | {"data": {SETTINGS_KEY: text}}


def service(policy: Policy, pod_set: PodSet) -> Manifest:
    """Clients' way to the sidecars."""
    wanted = pod_set.service
    made = _object("v1", "Service", policy, policy.name)
    if wanted.annotations:
        made["metadata"]["annotations"] = dict(wanted.annotations)
    port = {"name": "http", "port": wanted.port, "targetPort": "http", "protocol": "TCP", "appProtocol": "http"}
    return made | {"spec": {"type": wanted.type, "selector": {POLICY_LABEL: policy.name}, "ports": [port]}}


def workload(policy: Policy, pod_set: PodSet, images: Images) -> Manifest:
    """The StatefulSet or Deployment."""
    spec: Manifest = {
        "replicas": pod_set.replicas,
        "revisionHistoryLimit": 5,
        "selector": {"matchLabels": {POLICY_LABEL: policy.name}},
        "template": pod_template(policy, pod_set, images),
    }
    if pod_set.workload == "StatefulSet":
        # Engines do not wait for one another at the start.
        spec |= {"serviceName": policy.name, "podManagementPolicy": "Parallel"}
        spec |= _claims(pod_set)
    return _object("apps/v1", pod_set.workload, policy, policy.name) | {"spec": spec}


def disruption_budget(policy: Policy) -> Manifest:
    """One pod at a time. Made only for more than one pod: with a single one it would block every drain."""
    made = _object("policy/v1", "PodDisruptionBudget", policy, policy.name)
    return made | {"spec": {"maxUnavailable": 1, "selector": {"matchLabels": {POLICY_LABEL: policy.name}}}}


def _claims(pod_set: PodSet) -> Manifest:
    if pod_set.storage is None:
        return {}
    spec: Manifest = {
        "accessModes": ["ReadWriteOnce"],
        "resources": resources_of(Resources(requests={"storage": pod_set.storage.size})),
    }
    if pod_set.storage.storage_class_name:
        spec["storageClassName"] = pod_set.storage.storage_class_name
    return {"volumeClaimTemplates": [{"metadata": {"name": "sagesched-history"}, "spec": spec}]}


def _object(api_version: str, kind: str, policy: Policy, name: str) -> Manifest:
    """Owned by the policy, so that it goes when the policy goes, whether the operator runs or not."""
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": policy.name, "uid": policy.uid, "controller": True}
    metadata = {
        "name": name,
        "namespace": policy.namespace,
        "labels": labels_of(policy),
        "ownerReferences": [owner],
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}
