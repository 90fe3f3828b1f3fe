"""The settings that a policy's pods are to run: the cluster's defaults, the policy's own over them, and what the
operator knows because it made the pods."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from sagesched.settings import Settings, SettingsError, decode, digest
from sagesched_operator.engine_container import API_KEY_ENV, command_line
from sagesched_operator.policy import SHARED, Policy, PolicySpec

HISTORY_PATH = "/var/lib/sagesched/history"

Document = dict[str, Any]


class Effective(NamedTuple):
    """Settings as the pods' file has them, read whole."""

    document: Document
    """Only what somebody has set, so that a sidecar of another version meets no field that it need not know."""
    settings: Settings
    digest: str


def effective(defaults: Mapping[str, Any], policy: Policy) -> Effective:
    """What a policy's pods are to run. Raises SettingsError: `spec.path: what is wrong`, or `defaults.path: ...` where
    the cluster's defaults have the wrong field."""
    document: Document = {name: dict(fields) for name, fields in _sections(defaults).items()}
    for name, fields in [*policy.spec.overlay.items(), *_known(defaults, policy).items()]:
        document[name] = document.get(name, {}) | fields
    try:
        settings = decode(document)
    except SettingsError as error:
        raise SettingsError(f"{_owner(str(error), policy.spec)}.{error}") from None
    return Effective(document, settings, digest(settings))


def check_defaults(defaults: Mapping[str, Any]) -> None:
    """Raises SettingsError where the defaults could be no policy's."""
    try:
        decode(_sections(defaults))
    except SettingsError as error:
        raise SettingsError(f"defaults.{error}") from None


def _sections(defaults: Mapping[str, Any]) -> Document:
    """The defaults, but for what they may not say. Raises SettingsError."""
    for name, fields in defaults.items():
        if name not in SHARED:
            raise SettingsError(f"defaults.{name}: unknown section; there are {', '.join(SHARED)}")
        if not isinstance(fields, dict):
            raise SettingsError(f"defaults.{name}: must hold fields, as `policy: sagesched`")
        for field in sorted(SHARED[name].not_in_policy):
            if _has(fields, field):
                raise SettingsError(f"defaults.{name}.{field}: the operator sets it; remove it")
    return dict(defaults)


def _has(fields: Any, path: str) -> bool:
    """Whether a field is there; a dot leads into an object."""
    name, _, rest = path.partition(".")
    return isinstance(fields, dict) and name in fields and (not rest or _has(fields[name], rest))


def _known(defaults: Mapping[str, Any], policy: Policy) -> Document:
    """What the operator knows, or decides, because it made the pods."""
    spec = policy.spec
    if spec.pod_set is None:
        return {}
    known: Document = {
        "engine": {"arguments": command_line(spec.pod_set)},
        "server": {"drainSeconds": spec.pod_set.drain_seconds},
    }
    if spec.pod_set.api_key is not None:
        known["engine"]["apiKeyEnv"] = API_KEY_ENV
    store = (defaults.get("history", {}) | spec.history).get("store")
    if store == "embedded":
        known["history"] = {"path": HISTORY_PATH}
    if store == "server":  # others write there too: nobody names another namespace's tenant
        known["history"] = {"tenant": policy.namespace}
    return known


def _owner(problem: str, spec: PolicySpec) -> str:
    """Who has set the field that a problem begins with."""
    section, _, rest = problem.partition(":")[0].partition(".")
    field = rest.partition(".")[0].partition("[")[0]
    return "spec" if section not in SHARED or field in getattr(spec, section) or field == "arguments" else "defaults"
