"""The conditions of a policy: ordered checks, each with a reason, and one status from all of them. Pure."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

from sagesched_operator.policy import Condition, ConditionStatus

Type = Literal["Accepted", "ConfigResolved", "SidecarsSynced", "Dispatching", "Ready"]
Reason = Literal[
    "Accepted",
    "AttachingNotSupported",
    "ConfigResolved",
    "InvalidDefaults",
    "InvalidSetting",
    "InvalidSpec",
    "NameTaken",
    "NoPodReady",
    "NoPods",
    "PodsNotReady",
    "PodsReady",
    "Ready",
    "SettingsNotTaken",
    "SettingsOnTheirWay",
    "SettingsInUse",
]
"""docs/operator.md says what each means and what to do."""


class Finding(NamedTuple):
    """What one check found."""

    type: Type
    status: ConditionStatus
    reason: Reason
    message: str = ""


def ready_of(findings: Sequence[Finding]) -> Finding:
    """Ready: True where all are, else with the reason and message of the first that is not."""
    for finding in findings:
        if finding.status != "True":
            return Finding("Ready", "False", finding.reason, finding.message)
    return Finding("Ready", "True", "Ready", "all pods are ready and run the settings of this policy")


def conditions(
    findings: Sequence[Finding], before: Sequence[Condition], generation: int, now: str
) -> tuple[Condition, ...]:
    """As the status has them; a condition keeps its time while its status stays. `now` is RFC 3339."""
    last = {condition.type: condition for condition in before}
    return tuple(_condition(finding, last.get(finding.type), generation, now) for finding in findings)


def _condition(finding: Finding, last: Condition | None, generation: int, now: str) -> Condition:
    same = last is not None and last.status == finding.status
    since = last.last_transition_time if last is not None and same else now
    return Condition(
        type=finding.type,
        status=finding.status,
        reason=finding.reason,
        message=finding.message[:4096],
        observed_generation=generation,
        last_transition_time=since,
    )
