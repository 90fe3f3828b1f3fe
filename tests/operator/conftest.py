"""Policies as the API server hands them over."""

from typing import Any

import pytest

from sagesched_operator.pods import Images
from sagesched_operator.policy import Policy, decode_policy

IMAGES = Images("sidecar:1", "vllm:1", "simulator:1")


def body_of(spec: dict[str, Any]) -> dict[str, Any]:
    """An object with that spec."""
    return {"metadata": {"namespace": "team", "name": "chat", "uid": "u-1", "generation": 3}, "spec": spec}


@pytest.fixture
def images() -> Images:
    """What the operator takes where a policy names no image."""
    return IMAGES


@pytest.fixture
def make_policy() -> Any:
    """`make_policy(pod_set={...}, scheduling={...})`: a policy, by default of one simulated engine."""

    def make(pod_set: dict[str, Any] | None = None, **sections: Any) -> Policy:
        engine = {"engine": {"kind": "simulator"}}
        return decode_policy(body_of({"podSet": {"model": "m"} | engine | (pod_set or {}), **sections}))

    return make
