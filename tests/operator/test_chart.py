"""The chart without Helm: its schema knows every value, it grants what the operator calls; examples are policies."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sagesched_operator.effective import effective
from sagesched_operator.handlers import WATCHED
from sagesched_operator.manifests import names_of
from sagesched_operator.policy import GROUP, PLURAL, SHARED, decode_policy

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts/sagesched"
VALUES = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
SCHEMA = json.loads((CHART / "values.schema.json").read_text("utf-8"))
EXAMPLES = sorted((ROOT / "docs/examples").glob("*.yaml"))


def rules() -> dict[str, set[str]]:
    text = (CHART / "templates/_helpers.tpl").read_text("utf-8")
    block = re.search(r'define "sagesched\.rules" -}}\n(.*?){{- end', text, re.S)
    assert block
    return {name: set(rule["verbs"]) for rule in yaml.safe_load(block[1]) for name in rule["resources"]}


def objects(schema: dict[str, Any], values: Any) -> Iterator[tuple[dict[str, Any], Any]]:
    if isinstance(values, dict) and "properties" in schema:
        yield schema, values
        for name, inner in values.items():
            yield from objects(schema["properties"].get(name, {}), inner)


def test_the_schema_knows_every_value_and_no_other() -> None:
    for schema, values in objects(SCHEMA, VALUES):
        assert schema["additionalProperties"] is False
        assert values.keys() <= schema["properties"].keys()
    assert SCHEMA["properties"].keys() - VALUES.keys() == {"global"}
    assert SCHEMA["properties"]["defaults"]["properties"].keys() == SHARED.keys()


def test_what_is_granted_is_what_is_watched_and_made() -> None:
    granted = rules()
    for *_, plural in WATCHED:
        assert {"list", "watch"} <= granted[plural]
    assert granted[PLURAL] == {"get", "list", "watch"}, "a policy is its owner's to write"
    assert granted[f"{PLURAL}/status"] == {"patch"}
    assert "delete" not in set().union(*(verbs for name, verbs in granted.items() if name != "poddisruptionbudgets"))
    assert granted.keys() == {*(plural for *_, plural in WATCHED), PLURAL, f"{PLURAL}/status", "events"}
    assert not [verbs for verbs in granted.values() if "*" in verbs]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_a_policy_whose_settings_can_be_used(path: Path) -> None:
    for document in yaml.safe_load_all(path.read_text("utf-8")):
        assert document["apiVersion"].startswith(GROUP)
        document["metadata"] |= {"namespace": "n", "uid": "u"}
        policy = decode_policy(document)
        assert policy.spec.pod_set
        assert names_of(policy, policy.spec.pod_set)
        effective({}, policy)
