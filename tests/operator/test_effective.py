"""Which settings a policy's pods are to run, and whose field a wrong one is."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagesched.settings import SettingsError
from sagesched_operator.effective import HISTORY_PATH, check_defaults, effective
from sagesched_operator.policy import decode_policy

POLICY = {"metadata": {"namespace": "n", "name": "p", "uid": "u"}}
fields = st.fixed_dictionaries(
    {},
    optional={
        "policy": st.sampled_from(["fcfs", "gittins", "sagesched"]),
        "bucketTokens": st.integers(1, 1000),
        "boost": st.floats(0, 10),
    },
)


@given(fields, fields)
def test_the_policy_s_own_fields_outweigh_the_defaults_and_nothing_else_is_lost(
    defaults: dict[str, Any], own: dict[str, Any]
) -> None:
    spec = {"podSet": {"model": "m"}, "scheduling": own}
    now = effective({"scheduling": defaults}, decode_policy(POLICY | {"spec": spec}))
    assert now.document.get("scheduling", {}) == defaults | own
    assert now.settings.scheduling.bucket_tokens == (defaults | own).get("bucketTokens", 200)


@given(fields)
def test_the_same_settings_have_the_same_digest_whoever_set_them(values: dict[str, Any]) -> None:
    bare = decode_policy(POLICY | {"spec": {"podSet": {"model": "m"}}})
    full = decode_policy(POLICY | {"spec": {"podSet": {"model": "m"}, "scheduling": values}})
    assert effective({"scheduling": values}, bare).digest == effective({}, full).digest


def test_what_the_operator_knows_is_told_the_sidecar(make_policy: Any) -> None:
    policy = make_policy(
        {"engine": {"kind": "vllm", "args": ["--max-num-seqs", "8"]}, "apiKey": {"name": "s", "key": "k"}},
        history={"store": "embedded"},
    )
    settings = effective({}, policy).settings
    assert settings.engine.known_slots == 8
    assert settings.engine.facts.served_models == ("m",)
    assert settings.engine.api_key_env == "SAGESCHED_ENGINE_API_KEY"
    assert settings.history.path == HISTORY_PATH


@pytest.mark.parametrize(
    ("defaults", "own", "path"),
    [
        ({}, {"scheduling": {"bucketTokens": 0}}, "spec.scheduling.bucketTokens"),
        ({"scheduling": {"bucketTokens": 0}}, {}, "defaults.scheduling.bucketTokens"),
        ({"scheduling": {"bucketToken": 5}}, {}, "defaults.scheduling.bucketToken"),
        ({}, {"scheduling": {"bucketToken": 5}}, "spec.scheduling.bucketToken"),
        ({}, {"engine": {"mode": "priority"}}, "spec.engine.mode"),
        ({"engine": {"mode": "priority"}}, {}, "defaults.engine.mode"),
        ({"grpc": {}}, {}, "defaults.grpc"),
        ({"engine": {"arguments": []}}, {}, "defaults.engine.arguments"),
        ({"server": {"drainSeconds": 5}}, {}, "defaults.server.drainSeconds"),
        ({"queue": 5}, {}, "defaults.queue"),
        ({"history": {"tenant": "other"}}, {}, "defaults.history.tenant"),
        ({"history": {"server": {"url": "http://q", "apiKeyFile": "/k"}}}, {}, "defaults.history.server.apiKeyFile"),
    ],
)
def test_a_wrong_field_is_named_with_whose_it_is(make_policy: Any, defaults: Any, own: Any, path: str) -> None:
    with pytest.raises(SettingsError, match=rf"^{path}\b"):
        effective(defaults, make_policy(**own))


def test_defaults_are_refused_by_themselves_too() -> None:
    check_defaults({"scheduling": {"policy": "fcfs"}})
    with pytest.raises(SettingsError, match=r"^defaults\.scheduling\.policy"):
        check_defaults({"scheduling": {"policy": "lifo"}})


def test_on_a_server_that_others_use_the_tenant_is_the_namespace(make_policy: Any) -> None:
    server = {"store": "server", "server": {"url": "http://127.0.0.1:6333"}}
    assert effective({}, make_policy(history=server)).settings.history.tenant == "team"
    assert effective({"history": server}, make_policy()).settings.history.tenant == "team"
    assert effective({}, make_policy()).settings.history.tenant == ""
