"""The generated CRD, without a cluster: all has bounds and words, and it is one schema with what the operator reads."""

import json
import re
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from sagesched.settings import Settings, SettingsError
from sagesched_operator.effective import effective
from sagesched_operator.policy import SHARED, Condition, PolicySpec, PolicyStatus, decode_policy
from sagesched_operator.rules import RULES

ROOT = Path(__file__).parents[2]
CRD = yaml.safe_load((ROOT / "crds/sagesched.io_sageschedpolicies.yaml").read_text("utf-8"))
VERSION = CRD["spec"]["versions"][0]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]
SPEC = SCHEMA["properties"]["spec"]
MINIMAL = {"podSet": {"model": "m"}}
Schema = dict[str, Any]


def nodes(schema: Schema, at: str) -> Iterator[tuple[str, Schema]]:
    """Every schema inside, with its path; a list's items end with []."""
    yield at, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, f"{at}.{name}")
    if "items" in schema:
        yield from nodes(schema["items"], at + "[]")


SPEC_NODES = dict(nodes(SPEC, "spec"))
STATUS_NODES = dict(nodes(SCHEMA["properties"]["status"], "status"))
NODES = SPEC_NODES | STATUS_NODES


@pytest.mark.parametrize("path", [path for path in NODES if not path.endswith("[]")])
def test_every_field_says_what_it_is_for(path: str) -> None:
    assert NODES[path]["description"].rstrip().endswith((".", ".)")) or "Default:" in NODES[path]["description"]


@pytest.mark.parametrize("path", NODES)
def test_everything_is_bounded(path: str) -> None:
    """The API server reckons the cost of rules by bounds, and an object has to stay small."""
    schema, kind = NODES[path], NODES[path].get("type")
    if schema.get("x-kubernetes-int-or-string") or schema.get("x-kubernetes-preserve-unknown-fields"):
        return
    if kind == "string":
        assert {"maxLength", "enum"} & schema.keys()
    elif kind == "array":
        assert "maxItems" in schema
    elif kind in ("integer", "number"):
        assert "minimum" in schema
    elif kind == "object":
        assert "properties" in schema or {"additionalProperties", "maxProperties"} <= schema.keys()
    else:
        assert kind == "boolean"


@pytest.mark.parametrize("path", [path for path, schema in NODES.items() if schema.get("type") == "array"])
def test_every_list_says_how_it_merges(path: str) -> None:
    """Which cannot be changed later without a new version."""
    schema = NODES[path]
    assert schema["x-kubernetes-list-type"] in ("atomic", "map")
    if schema["x-kubernetes-list-type"] == "map":
        keys = schema["x-kubernetes-list-map-keys"]
        assert set(keys) <= set(schema["items"].get("required", ())), "an entry without its key could not be told apart"


def fields_of(kind: Any, at: str) -> Iterator[str]:
    """The paths of a struct's fields, as those of `nodes`."""
    for part in typing.get_args(kind) or (kind,):
        if typing.get_origin(part) in (tuple, types.UnionType):
            yield from fields_of(part, at)
        elif isinstance(part, type) and issubclass(part, msgspec.Struct):
            for field in msgspec.structs.fields(part):
                yield f"{at}.{field.encode_name}"
                yield from fields_of(field.type, f"{at}.{field.encode_name}{listed(field.type)}")


def listed(kind: Any) -> str:
    return "[]" if "tuple" in str(kind) else ""


@pytest.mark.parametrize("name", SHARED)
def test_a_section_has_every_field_of_the_settings_but_those_that_are_left_out(name: str) -> None:
    left_out = {f"{name}.{field}" for field in SHARED[name].not_in_policy}
    there = set(fields_of(SHARED[name].section, name))
    assert left_out <= there
    shown = {path for path, _ in nodes(SPEC["properties"][name], name) if not path.endswith("[]")}
    assert shown - {name} == there - left_out


def test_only_the_grpc_door_has_no_section() -> None:
    """A section that is new belongs into SHARED and PolicySpec, or here."""
    assert {field.name for field in msgspec.structs.fields(Settings)} - SHARED.keys() == {"grpc"}


@pytest.mark.parametrize("name", SHARED)
def test_the_api_server_fills_in_no_setting(name: str) -> None:
    """Else the ConfigMap of defaults would have no effect on any of them."""
    assert not [path for path, schema in nodes(SPEC["properties"][name], name) if "default" in schema]


def outside(schema: Schema) -> Iterator[Any]:
    """Values that the schema refuses."""
    step = 1 if schema["type"] == "integer" else 0.001
    if "minimum" in schema:
        yield schema["minimum"] if schema.get("exclusiveMinimum") else schema["minimum"] - step
    if "maximum" in schema:
        yield schema["maximum"] if schema.get("exclusiveMaximum") else schema["maximum"] + step


def wrong_values() -> Iterator[tuple[str, Any]]:
    for path, schema in SPEC_NODES.items():
        if "[]" in path:
            continue
        if schema.get("type") in ("integer", "number"):
            yield from ((path, value) for value in outside(schema))
        elif "enum" in schema:
            yield path, "no such word"
        elif schema.get("type") == "boolean":
            yield path, "yes"


def with_value(path: str, value: Any) -> dict[str, Any]:
    spec: dict[str, Any] = json.loads(json.dumps(MINIMAL))
    if not path.startswith("spec.podSet"):
        spec |= {"targetRef": {"kind": "Deployment", "name": "n"}} if "targetRef" in path else {}
        spec |= {"selector": {"matchLabels": {"a": "b"}}} if "selector" in path else {}
    *sections, field = path.split(".")[1:]
    at = spec
    for name in sections:
        at = at.setdefault(name, {})
    at[field] = value
    return {"metadata": {"name": "n", "namespace": "n", "uid": "u"}, "spec": spec}


@pytest.mark.parametrize(("path", "value"), list(wrong_values()))
def test_what_the_api_server_refuses_the_operator_refuses_too_and_names(path: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=re.escape(path) + r"\b"):
        effective({}, decode_policy(with_value(path, value)))


def always_there(path: str) -> bool:
    """Whether the API server fills it in for every policy with a podSet: each object around it has a default."""
    parts = path.split(".")
    around = [".".join(parts[:n]) for n in range(3, len(parts))]
    return path.startswith(("spec.podSet.", "spec.sidecar")) and all("default" in SPEC_NODES[one] for one in around)


@pytest.mark.parametrize("path", [p for p, schema in SPEC_NODES.items() if "default" in schema and always_there(p)])
def test_what_the_api_server_fills_in_is_what_the_operator_would(path: str) -> None:
    filled = decode_policy(with_value(path, SPEC_NODES[path]["default"])).spec
    assert filled == decode_policy(with_value("spec.podSet.model", "m")).spec


def test_rules_are_where_they_say_and_nowhere_else() -> None:
    found = {
        (path, one["rule"], one["message"])
        for path, schema in NODES.items()
        for one in schema.get("x-kubernetes-validations", ())
    }
    assert found == {tuple(rule) for rule in RULES}
    assert len({rule.message for rule in RULES}) == len(RULES)


def test_the_chart_s_copy_is_the_same_and_outlives_the_chart() -> None:
    lines = (ROOT / "charts/sagesched/templates/crd.yaml").read_text("utf-8").splitlines()
    copy = yaml.safe_load("\n".join(line for line in lines if not line.startswith("{{")))
    assert copy["metadata"].pop("annotations") == {"helm.sh/resource-policy": "keep"}
    assert copy == CRD


def test_scale_and_columns_lead_to_fields_that_are_there() -> None:
    paths = list(VERSION["subresources"]["scale"].values())
    paths += [column["jsonPath"] for column in VERSION["additionalPrinterColumns"]]
    for path in paths:
        if path.startswith(".metadata"):
            continue
        plain = re.sub(r"\[\?\(.*?\)\]", "[]", path.removeprefix("."))
        assert plain in NODES, path


def test_the_status_that_the_operator_writes_is_in_the_schema() -> None:
    written = msgspec.to_builtins(PolicyStatus(conditions=(Condition(type="Ready", status="True", reason="Ready"),)))
    assert written.keys() <= SCHEMA["properties"]["status"]["properties"].keys()
    assert written["conditions"][0].keys() <= STATUS_NODES["status.conditions[]"]["properties"].keys()
    assert {field.encode_name for field in msgspec.structs.fields(PolicySpec)} == SPEC["properties"].keys()
