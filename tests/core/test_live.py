"""What changes in a running host, what waits for a restart, what has no effect, and who runs which revision."""

import copy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sagesched.idle import RULES, idle_fields
from sagesched.live import LIVE, RESTART, differences, is_declared, merged
from sagesched.problems import problems_of
from sagesched.revisions import decode_revisions
from sagesched.settings import Settings, SettingsError, decode, dump

LAW = settings(max_examples=60, deadline=None)


def fields(document: dict[str, Any], at: str = "") -> list[str]:
    found = []
    for name, value in document.items():
        found += fields(value, f"{at}{name}.") if isinstance(value, dict) else [at + name]
    return found


FIELDS = fields(msgspec.to_builtins(Settings()))
OTHER = {
    "embedding": {"kind": "sentence-transformers", "model": "a/b", "deadlineSeconds": 0.2},
    "scheduling": {"policy": "fcfs", "boost": 0.5, "classes": [{"name": "a"}]},
    "history": {"seedFile": "x", "learn": False},
    "engine": {"slots": 9, "apiKeyEnv": "KEY"},
    "queue": {"maxRequests": 5},
}
parts = st.fixed_dictionaries(
    {}, optional={name: st.dictionaries(st.sampled_from(sorted(v)), st.none()) for name, v in OTHER.items()}
)


def made(part: dict[str, Any]) -> Settings:
    """Some of the fields of OTHER; a model goes with its kind."""
    chosen = {name: {field: OTHER[name][field] for field in of} for name, of in part.items()}
    embedding = chosen.get("embedding", {})
    if "kind" in embedding or "model" in embedding:
        embedding |= {"kind": OTHER["embedding"]["kind"], "model": OTHER["embedding"]["model"]}
    return decode(chosen)


@pytest.mark.parametrize("path", FIELDS)
def test_every_field_is_said_to_be_live_or_to_need_a_restart(path: str) -> None:
    """A new field is named in core/sagesched/live.py: in LIVE where a running host takes it over, else in RESTART."""
    assert is_declared(path), f"{path}: name it (or its section) in LIVE or in RESTART, and not in both"


@pytest.mark.parametrize("path", sorted({*LIVE, *RESTART, *RULES}))
def test_what_is_said_of_fields_is_said_of_fields_that_exist(path: str) -> None:
    assert any(field == path or field.startswith(path + ".") for field in FIELDS), path


@LAW
@given(parts, parts)
def test_differences_are_the_fields_that_differ(one: dict[str, Any], other: dict[str, Any]) -> None:
    old, new = made(one), made(other)
    found = differences(old, new)
    assert bool(found) == (old != new)
    assert [(c.path, c.new, c.old) for c in differences(new, old)] == [(c.path, c.old, c.new) for c in found]
    document = msgspec.to_builtins(old)
    for change in found:
        section, field = change.path.split(".")
        assert document[section][field] == change.old
        document[section][field] = change.new
    assert decode(document) == new


@LAW
@given(parts, parts)
def test_what_waits_for_a_restart_stays_and_all_else_comes(one: dict[str, Any], other: dict[str, Any]) -> None:
    running, wanted = made(one), made(other)
    now, pending = merged(running, wanted)
    assert {c.path for c in differences(now, wanted)} == {c.path for c in pending}
    assert all(c.path in RESTART and c.restart for c in pending)
    assert not any(c.restart for c in differences(running, now))
    assert (now == wanted) == (not pending)
    assert merged(now, wanted) == (now, pending), "once more changes nothing"


@pytest.mark.parametrize(
    ("document", "idle"),
    [
        ({}, set()),
        ({"scheduling": {"policy": "fcfs", "bucketTokens": 9}}, {"scheduling.bucketTokens"}),
        ({"scheduling": {"bucketTokens": 9}}, set()),
        ({"scheduling": {"policy": "mean", "boost": 1}}, {"scheduling.boost"}),
        ({"scheduling": {"policy": "sagesched", "boost": 1}}, set()),
        ({"scheduling": {"policy": "sjf", "alpha": 1}}, {"scheduling.alpha"}),
        ({"scheduling": {"policy": "gittins", "alpha": 1}}, set()),
        ({"scheduling": {"policy": "fcfs", "maxWaitSeconds": 1}}, {"scheduling.maxWaitSeconds"}),
        (
            {
                "scheduling": {
                    "policy": "fcfs",
                    "maxWaitSeconds": 1,
                    "classes": [{"name": "a", "priority": 1}, {"name": "b"}],
                }
            },
            set(),
        ),
        ({"scheduling": {"policy": "fcfs", "classes": [{"name": "a", "weight": 3}]}}, {"scheduling.classes"}),
        ({"scheduling": {"shadow": {"policy": "fcfs"}}}, set()),
        ({"scheduling": {"shadow": {"policy": "fcfs"}}, "engine": {"mode": "priority"}}, {"scheduling.shadow"}),
        ({"preemption": {"hysteresis": 1, "enabled": False}}, {"preemption.hysteresis", "preemption.enabled"}),
        ({"preemption": {"hysteresis": 1, "watchdogSeconds": 9}, "engine": {"mode": "engine"}}, set()),
        (
            {"preemption": {"enabled": False, "maxPerRequest": 2}, "engine": {"mode": "engine"}},
            {"preemption.maxPerRequest"},
        ),
        (
            {"preemption": {"hysteresis": 1}, "engine": {"mode": "engine"}, "scheduling": {"policy": "fcfs"}},
            {"preemption.hysteresis"},
        ),
        ({"embedding": {"deadlineSeconds": 1}}, {"embedding.deadlineSeconds"}),
        ({"embedding": {"deadlineSeconds": 1, "kind": "sentence-transformers", "model": "m"}}, set()),
    ],
)
def test_fields_without_effect_are_named(document: Any, idle: set[str]) -> None:
    found = idle_fields(decode(document))
    assert {one.path for one in found} == idle
    assert all(one.why for one in found)


@LAW
@given(parts, parts, st.lists(st.sampled_from("abc"), unique=True))
def test_each_pod_finds_its_own_revision(stable: dict[str, Any], candidate: dict[str, Any], pods: list[str]) -> None:
    for_all, for_some = (msgspec.to_builtins(made(part)) for part in (stable, candidate))
    both = decode_revisions({"stable": for_all, "candidate": {"pods": pods, "settings": for_some}})
    for pod in ("a", "b", "c", "", "other"):
        found = both.of(pod)
        assert found.revision == ("candidate" if pod in pods else "stable")
        assert found.settings == made(candidate if pod in pods else stable)
    plain, alone = decode_revisions(for_all), decode_revisions({"stable": for_all})
    assert plain == alone
    assert plain.of("a") == ("stable", made(stable))


@pytest.mark.parametrize(
    ("document", "path"),
    [
        ({"stable": {"scheduling": {"boost": -1}}}, "stable.scheduling.boost"),
        ({"stable": {"boost": 1}}, "stable.boost"),
        ({"stable": {}, "scheduling": {}}, "scheduling"),
        ({"stable": [], "candidate": None}, "stable"),
        ({"candidate": {"pods": ["a"], "settings": {"queue": {"maxBytes": 1}}}}, "candidate.settings.queue.maxBytes"),
        ({"candidate": {"pods": "a"}}, "candidate.pods"),
        ({"candidate": {"pods": [""]}}, "candidate.pods[0]"),
        ({"candidate": {"scheduling": {}}}, "candidate.scheduling"),
        (
            {"candidate": {"settings": {"embedding": {"model": "m"}}}},
            "candidate.settings.embedding.model",
        ),
        ({"scheduling": {"boost": -1}}, "scheduling.boost"),
    ],
)
def test_a_revision_that_is_wrong_is_refused_whoever_runs_it(document: Any, path: str) -> None:
    with pytest.raises(SettingsError) as caught:
        decode_revisions(document)
    assert str(caught.value).startswith(f"{path}: "), str(caught.value)


def test_a_revision_s_settings_are_whole() -> None:
    both = decode_revisions({"stable": {"queue": {"maxRequests": 5}}, "candidate": {"pods": ["a"]}})
    assert dump(both.of("a").settings) == dump(Settings())


WRONG = {
    "scheduling.policy": "lifo",
    "scheduling.boost": -1,
    "scheduling.classes": [{"name": "a"}, {"name": "B"}],
    "scheduling.unknown": 1,
    "queue.maxRequests": 0,
    "engine.slots": "many",
    "engine.kvReserve": 1,
    "nothing.like": {},
}


@LAW
@given(st.sets(st.sampled_from(sorted(WRONG))), parts, st.sampled_from(["", "stable.", "candidate.settings."]))
def test_every_wrong_field_is_found(wrong: set[str], part: dict[str, Any], at: str) -> None:
    document = msgspec.to_builtins(made(part))
    for path in wrong:
        section, field = path.split(".")
        document.setdefault(section, {})[field] = WRONG[path]
    held = {"": document, "stable.": {"stable": document}, "candidate.settings.": {"candidate": {"settings": document}}}
    before = copy.deepcopy(held[at])
    found = problems_of(held[at])
    paths = {one.partition(": ")[0].partition("[")[0] for one in found}
    assert paths == {at + (path if not path.startswith("nothing") else "nothing") for path in wrong}
    assert len(found) == len(wrong)
    assert held[at] == before, "the document is left as it is"


@pytest.mark.parametrize(
    ("document", "count"),
    [([], 1), ("x", 1), (None, 0), ({"stable": 3}, 1), ({"queue": None, "engine": None}, 2)],
)
def test_a_file_that_is_no_object_is_one_problem(document: Any, count: int) -> None:
    assert len(problems_of(document)) == count


def test_what_is_missing_is_the_last_problem_told() -> None:
    found = problems_of({"embedding": {"kind": "sentence-transformers"}, "queue": {"maxRequests": 0}})
    assert [one.partition(": ")[0] for one in found] == ["queue.maxRequests", "embedding.model"]
