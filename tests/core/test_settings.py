"""Laws of the settings: validated whole, errors by path, one digest for equal settings."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagesched.settings import Settings, SettingsError, decode, digest, dump

LAW = settings(max_examples=60, deadline=None)
documents = st.fixed_dictionaries(
    {},
    optional={
        "scheduling": st.fixed_dictionaries(
            {},
            optional={
                "policy": st.sampled_from(["fcfs", "sjf", "mean", "gittins", "sagesched"]),
                "bucketTokens": st.integers(1, 100_000),
                "boost": st.floats(0, 10),
                "similarityThreshold": st.floats(-1, 1),
                "maxWaitSeconds": st.floats(0.1, 600),
                "classes": st.lists(
                    st.fixed_dictionaries(
                        {"name": st.from_regex(r"[a-z][a-z0-9]{0,5}", fullmatch=True)},
                        optional={"priority": st.integers(-1000, 1000), "weight": st.floats(0.1, 1000)},
                    ),
                    max_size=4,
                    unique_by=lambda c: c["name"],
                ),
            },
        ),
        "queue": st.fixed_dictionaries({}, optional={"maxRequests": st.integers(1, 10**6)}),
        "engine": st.fixed_dictionaries({}, optional={"slots": st.none() | st.integers(1, 100)}),
        "history": st.fixed_dictionaries({}, optional={"learn": st.booleans()}),
    },
)


def backwards(document: Any) -> Any:
    """The same document, its fields listed the other way round."""
    if not isinstance(document, dict):
        return document
    return {name: backwards(document[name]) for name in reversed(document)}


@pytest.mark.parametrize("empty", [None, {}, {"scheduling": {}}, {"engine": {"slots": None}}])
def test_an_empty_file_is_a_valid_one(empty: Any) -> None:
    assert decode(empty) == Settings()


@LAW
@given(documents)
def test_the_canonical_dump_decodes_to_the_same_settings(document: dict[str, Any]) -> None:
    made = decode(document)
    assert decode(json.loads(dump(made))) == made
    for section, fields in document.items():
        for name, value in fields.items():
            dumped = json.loads(dump(made))[section][name]
            if name != "classes":
                assert dumped == value


@LAW
@given(documents, documents)
def test_the_digest_tells_settings_apart_and_nothing_else(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert digest(decode(one)) == digest(decode(backwards(one)))
    assert (digest(decode(one)) == digest(decode(other))) == (decode(one) == decode(other))
    assert len(digest(decode(one))) == 12


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"history": {"store": "server"}}, "history.server"),
        ({"history": {"server": {"url": "http://q:6333"}}}, "history.server"),
        ({"history": {"store": "server", "server": {}}}, "history.server"),
        ({"history": {"store": "server", "server": {"url": "q:6333"}}}, "history.server.url"),
        ({"history": {"store": "server", "server": {"url": "http://key@q:6333"}}}, "history.server.url"),
        ({"history": {"store": "server", "path": "/x", "server": {"url": "http://q:6333"}}}, "history.path"),
        (
            {"history": {"store": "server", "server": {"url": "http://q:6333", "apiKeyFile": "/k"}}},
            "history.server.url",
        ),
        (
            {"history": {"store": "server", "server": {"url": "http://q:6333", "caFile": "/c"}}},
            "history.server.caFile",
        ),
        ({"scheduling": {"policy": "lifo"}}, "scheduling.policy"),
        ({"scheduling": {"boost": -0.1}}, "scheduling.boost"),
        ({"scheduling": {"boost": float("nan")}}, "scheduling.boost"),
        ({"scheduling": {"boost": float("inf")}}, "scheduling.boost"),
        ({"scheduling": {"boost": "0.1"}}, "scheduling.boost"),
        ({"scheduling": {"bucketTokens": 0}}, "scheduling.bucketTokens"),
        ({"scheduling": {"bucketTokens": True}}, "scheduling.bucketTokens"),
        ({"scheduling": {"bucketTokens": 1.5}}, "scheduling.bucketTokens"),
        ({"scheduling": {"maxWaitSeconds": 0}}, "scheduling.maxWaitSeconds"),
        ({"scheduling": {"classes": [{"name": "a"}, {"name": "Not Me"}]}}, "scheduling.classes[1].name"),
        ({"scheduling": {"classes": [{"priority": 1}]}}, "scheduling.classes[0]"),
        ({"scheduling": {"classes": [{"name": "a", "weight": 0}]}}, "scheduling.classes[0].weight"),
        ({"scheduling": {"bucket_tokens": 5}}, "scheduling.bucket_tokens"),
        ({"scheduling": None}, "scheduling"),
        ({"scheduler": {}}, "scheduler"),
        ({"scheduling": {"classes": [{"name": "a", "rank": 0}]}}, "scheduling.classes[0].rank"),
        ({"history": {"windowRows": 0}}, "history.windowRows"),
        ({"history": {"learn": "yes"}}, "history.learn"),
        ({"queue": {"maxBytes": 10}}, "queue.maxBytes"),
        ({"engine": {"kvReserve": 1.0}}, "engine.kvReserve"),
        ({"engine": {"apiKeyEnv": "A-B"}}, "engine.apiKeyEnv"),
        ({"server": {"drainSeconds": -1}}, "server.drainSeconds"),
        ([], "the file"),
        ("text", "the file"),
        ({1: 2}, "the file"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(document: Any, path: str) -> None:
    with pytest.raises(SettingsError) as caught:
        decode(document)
    assert str(caught.value).startswith(f"{path}: "), str(caught.value)
    assert "$" not in str(caught.value).split(": ")[0]


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"embedding": {"kind": "sentence-transformers"}}, "embedding.model"),
        ({"embedding": {"model": "some/model"}}, "embedding.model"),
        ({"engine": {"apiKeyFile": "/key", "apiKeyEnv": "KEY"}}, "engine.apiKeyEnv"),
        ({"scheduling": {"maxWaitSeconds": 61}, "queue": {"maxAgeSeconds": 60}}, "scheduling.maxWaitSeconds"),
        ({"server": {"maxBodyBytes": 4096}, "queue": {"maxBytes": 2048}}, "server.maxBodyBytes"),
        ({"scheduling": {"classes": [{"name": "a"}, {"name": "b"}, {"name": "a"}]}}, "scheduling.classes"),
    ],
)
def test_fields_that_do_not_go_together_are_named_too(document: Any, path: str) -> None:
    with pytest.raises(SettingsError) as caught:
        decode(document)
    assert str(caught.value).startswith(f"{path}: "), str(caught.value)


def test_fields_that_do_go_together_pass() -> None:
    made = decode({"embedding": {"kind": "sentence-transformers", "model": "a/b"}, "engine": {"apiKeyEnv": "KEY"}})
    assert (made.embedding.model, made.engine.api_key_env) == ("a/b", "KEY")
    assert decode({"scheduling": {"maxWaitSeconds": 60}, "queue": {"maxAgeSeconds": 60}}) is not None


def test_settings_are_immutable() -> None:
    with pytest.raises(AttributeError):
        Settings().scheduling.boost = 1.0


def test_every_field_has_a_default_and_a_name_in_camel_case() -> None:
    dumped = json.loads(dump(Settings()))
    assert list(dumped) == sorted(dumped)
    for section, fields in dumped.items():
        assert section.isalpha()
        assert fields
        for name in fields:
            assert name.isalnum(), name
            assert name[0].islower(), name


def test_the_schema_can_be_written_for_others() -> None:
    """The copies of the schema are generated from it (docs/architecture.md)."""
    _, components = msgspec.json.schema_components([Settings])
    assert {"Settings", "Scheduling", "Queue", "Engine"} <= set(components)
    assert "maxWaitSeconds" in components["Scheduling"]["properties"]


@pytest.mark.parametrize(
    ("tenant", "shared", "named", "whose"),
    [
        ("", False, "", ""),
        ("", False, "t", "t"),
        ("ns", False, "", "ns"),
        ("ns", False, "t", "ns/t"),
        ("ns", True, "t", "ns"),
        ("", True, "t", ""),
    ],
)
def test_whose_history_a_request_uses(tenant: str, shared: bool, named: str, whose: str) -> None:
    assert decode({"history": {"tenant": tenant, "shareTenants": shared}}).history.tenant_of(named) == whose


def test_a_key_may_go_to_this_machine_without_tls() -> None:
    for url in ("http://127.0.0.1:6333", "http://localhost:6333", "http://[::1]:6333", "https://q:6333"):
        decode({"history": {"store": "server", "server": {"url": url, "apiKeyFile": "/k"}}})
