"""Plans from what was seen: conditions, reasons, and what is left alone."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagesched_operator.conditions import Reason
from sagesched_operator.effective import effective
from sagesched_operator.manifests import objects, settings_map
from sagesched_operator.plan import Plan, plan, refuse
from sagesched_operator.pods import Images
from sagesched_operator.policy import Condition, Policy, PolicyStatus, decode_policy
from sagesched_operator.seen import Running, Seen, SeenPod

IMAGES = Images("s", "v", "i")
THEN, NOW = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"


def policy_of(replicas: int = 1, **sections: Any) -> Policy:
    spec = {"podSet": {"model": "m", "replicas": replicas, "engine": {"kind": "simulator"}}, **sections}
    return decode_policy({"metadata": {"namespace": "n", "name": "p", "uid": "u", "generation": 2}, "spec": spec})


def made_for(policy: Policy) -> dict[tuple[str, str], Any]:
    assert policy.spec.pod_set
    found = (settings_map(policy, effective({}, policy).document), *objects(policy, policy.spec.pod_set, IMAGES))
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


def planned(
    policy: Policy, pods: tuple[SeenPod, ...] = (), owned: Any = None, defaults: Any = None, before: Any = None
) -> Plan:
    return plan(policy, defaults or {}, Seen(owned or {}, pods), IMAGES, before or PolicyStatus(), NOW)


def condition(made: Plan, kind: str) -> Condition:
    return next(one for one in made.status.conditions if one.type == kind)


def ready_pods(policy: Policy, count: int) -> tuple[SeenPod, ...]:
    running = Running(effective({}, policy).digest, True)
    return tuple(SeenPod(f"p-{n}", True, running) for n in range(count))


pods = st.lists(
    st.builds(
        SeenPod,
        st.text("abc", min_size=1),
        st.booleans(),
        st.none() | st.builds(Running, st.sampled_from([effective({}, policy_of()).digest, "0" * 12]), st.booleans()),
    ),
    max_size=5,
).map(tuple)


@given(pods, st.integers(0, 4))
def test_a_second_plan_from_the_same_cluster_changes_nothing(seen: tuple[SeenPod, ...], replicas: int) -> None:
    policy = policy_of(replicas)
    first = planned(policy, seen)
    second = planned(policy, seen, owned=made_for(policy), before=first.status)
    assert (second.apply, second.status, second.events, second.delete) == (first.apply, first.status, (), ())


@given(pods, st.integers(0, 4))
def test_ready_is_true_only_when_every_other_condition_is(seen: tuple[SeenPod, ...], replicas: int) -> None:
    made = planned(policy_of(replicas), seen)
    others = [one for one in made.status.conditions if one.type != "Ready"]
    assert (condition(made, "Ready").status == "True") == all(one.status == "True" for one in others)
    assert condition(made, "Ready").reason in {"Ready", *(one.reason for one in others)}


@given(pods)
def test_it_looks_again_until_every_pod_runs_the_settings(seen: tuple[SeenPod, ...]) -> None:
    digest = effective({}, policy_of()).digest
    at_rest = all(pod.running is not None and pod.running.file_digest == digest for pod in seen)
    assert (planned(policy_of(), seen).look_again_s is None) == at_rest


def test_all_is_well() -> None:
    policy = policy_of(2)
    made = planned(policy, ready_pods(policy, 2), owned=made_for(policy))
    assert [one.status for one in made.status.conditions] == ["True"] * 5
    assert (made.status.pods, made.status.replicas, made.status.ready_replicas) == ("2/2", 2, 2)
    assert made.status.selector == "sagesched.io/policy=p"
    assert {one.observed_generation for one in made.status.conditions} == {2}


@pytest.mark.parametrize(
    ("sections", "defaults", "reason", "words"),
    [
        ({"engine": {"mode": "priority"}}, {}, "InvalidSetting", "spec.engine.mode"),
        ({}, {"scheduling": {"bucketTokens": -1}}, "InvalidDefaults", "defaults.scheduling.bucketTokens"),
    ],
)
def test_wrong_settings_change_no_setting_and_the_rest_goes_on(
    sections: Any, defaults: Any, reason: Reason, words: str
) -> None:
    policy = policy_of(2, **sections)
    good = policy_of(2)
    before = planned(good, ready_pods(good, 2)).status
    made = planned(policy, ready_pods(good, 2), owned=made_for(good), defaults=defaults, before=before)
    assert "ConfigMap" not in {one["kind"] for one in made.apply}
    assert "StatefulSet" in {one["kind"] for one in made.apply}, "it still scales"
    assert made.delete == ()
    assert made.status.settings_digest == before.settings_digest
    ready = condition(made, "Ready")
    assert (ready.status, ready.reason) == ("False", reason)
    assert words in ready.message
    assert [event.type for event in made.events] == ["Warning"]


def test_nothing_is_made_of_a_policy_whose_first_settings_are_wrong() -> None:
    assert planned(policy_of(engine={"mode": "priority"})).apply == ()


def test_an_object_that_is_somebody_else_s_is_left_alone() -> None:
    policy = policy_of()
    foreign = {"kind": "Service", "metadata": {"name": "p"}}
    made = planned(policy, owned=made_for(policy) | {("Service", "p"): foreign})
    assert (made.apply, made.delete) == ((), ())
    assert condition(made, "Accepted").reason == "NameTaken"
    assert "Service p" in condition(made, "Ready").message


def test_a_budget_goes_with_the_second_pod() -> None:
    two, one = policy_of(2), policy_of(1)
    assert planned(one, owned=made_for(two)).delete == (("PodDisruptionBudget", "p"),)


def test_attaching_says_that_it_is_not_there_yet() -> None:
    meta = {"namespace": "n", "name": "p", "uid": "u", "generation": 1}
    policy = decode_policy({"metadata": meta, "spec": {"targetRef": {"kind": "Deployment", "name": "x"}}})
    made = planned(policy)
    assert (made.apply, condition(made, "Ready").reason) == ((), "AttachingNotSupported")


def test_a_sidecar_that_refuses_its_file_is_named() -> None:
    policy = policy_of()
    made = planned(policy, (SeenPod("p-0", True, Running("0" * 12, False)),))
    assert condition(made, "SidecarsSynced").reason == "SettingsNotTaken"
    assert "p-0" in condition(made, "Ready").message


def test_a_spec_that_does_not_decode_is_told() -> None:
    made = refuse(4, "spec.podSet.model: wrong", PolicyStatus(), NOW)
    assert (condition(made, "Accepted").reason, made.status.observed_generation) == ("InvalidSpec", 4)


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    policy = policy_of()
    first = plan(policy, {}, Seen({}), IMAGES, PolicyStatus(), THEN).status
    later = planned(policy, ready_pods(policy, 1), before=first)
    times = {one.type: one.last_transition_time for one in later.status.conditions}
    assert times == {"Accepted": THEN, "ConfigResolved": THEN, "SidecarsSynced": THEN, "Dispatching": NOW, "Ready": NOW}


def test_events_are_told_once() -> None:
    policy = policy_of()
    first = planned(policy)
    assert [event.reason for event in first.events] == ["SettingsChanged", "NoPodReady"]
    assert planned(policy, before=first.status).events == ()
    ready = planned(policy, ready_pods(policy, 1), before=first.status)
    assert [(event.type, event.reason) for event in ready.events] == [("Normal", "Ready")]
