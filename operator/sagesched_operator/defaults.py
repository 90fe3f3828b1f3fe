"""The cluster's defaults: a ConfigMap that people edit. A wrong one changes nothing, and every policy says so."""

import logging
from collections.abc import Mapping
from typing import Any

import yaml

from sagesched.settings import SettingsError
from sagesched_operator.effective import check_defaults

KEY = "settings.yaml"
_log = logging.getLogger(__name__)


class Defaults:
    """Those of the ConfigMap as it was seen last."""

    def __init__(self, namespace: str, name: str) -> None:
        self._namespace, self._name = namespace, name
        self._document: dict[str, Any] = {}
        self._problem: str | None = None

    def is_it(self, body: Mapping[str, Any]) -> bool:
        """Whether an object is that ConfigMap."""
        meta = body["metadata"]
        return (meta["namespace"], meta["name"]) == (self._namespace, self._name)

    def take(self, body: Mapping[str, Any] | None) -> bool:
        """The ConfigMap as it is now, or None where it is gone. Whether anything changed."""
        before = (self._document, self._problem)
        try:
            self._document, self._problem = parsed((body or {}).get("data") or {}), None
        except SettingsError as error:
            self._problem = str(error)
            _log.warning("the ConfigMap of defaults is wrong", extra={"problem": self._problem})
        return (self._document, self._problem) != before

    def now(self) -> Mapping[str, Any]:
        """The defaults. Raises SettingsError: `defaults.path: what is wrong`."""
        if self._problem is not None:
            raise SettingsError(self._problem)
        return self._document


def parsed(data: Mapping[str, str]) -> dict[str, Any]:
    """The settings in a ConfigMap's data. Raises SettingsError."""
    if unknown := sorted(data.keys() - {KEY}):
        raise SettingsError(f"defaults: key {unknown[0]} has no meaning; settings go under {KEY}")
    try:
        document = yaml.safe_load(data.get(KEY, "")) or {}
    except yaml.YAMLError as error:
        raise SettingsError(f"defaults.{KEY}: is not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(document, dict):
        raise SettingsError(f"defaults.{KEY}: must hold sections, as `scheduling:`")
    check_defaults(document)
    return document
