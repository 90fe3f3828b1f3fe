"""The settings file: read whole, both revisions checked, the pod's own chosen, the flags laid over it."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
import yaml

from sagesched.revisions import RevisionName, decode_revisions
from sagesched.settings import Settings, SettingsError, decode, digest
from sagesched_sidecar.tls import read_tls

MAX_FILE_BYTES = 2 << 20
"""Twice what a ConfigMap can hold."""

_YAML_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

Flags = Mapping[str, Mapping[str, object]]
"""Section to field to value, in the names of the file."""
NO_FLAGS: Flags = MappingProxyType({})


class Reading(NamedTuple):
    """What the file held when it was read; equal readings are the same file, whatever its times and links say."""

    content: bytes
    problem: str | None = None
    """Why it could not be read."""


class Loaded(NamedTuple):
    """Settings as one reading of the file and the flags give them."""

    settings: Settings
    file_digest: str
    """Of the pod's revision as the file has it, without flags: what whoever wrote the file compares with."""
    revision: RevisionName = "stable"
    reading: Reading = Reading(b"")

    @classmethod
    def without_file(cls, settings: Settings) -> "Loaded":
        """Settings that come from no file."""
        return cls(settings, digest(settings))


class Source(NamedTuple):
    """Where settings come from. Without a path they are the defaults and the flags."""

    path: Path | None
    flags: Flags = NO_FLAGS
    pod: str = ""

    def read(self) -> Reading:
        """The file as it is now; never raises."""
        if self.path is None:
            return Reading(b"")
        try:
            with self.path.open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            return Reading(b"", f"--settings: {self.path} cannot be read: {error.strerror}")
        if len(content) > MAX_FILE_BYTES:
            return Reading(b"", f"--settings: {self.path} is larger than {MAX_FILE_BYTES} bytes")
        return Reading(content)

    def load(self, reading: Reading) -> Loaded:
        """The settings of a reading. Raises SettingsError, whose message begins with the path of what is wrong."""
        if reading.problem is not None:
            raise SettingsError(reading.problem)
        chosen = decode_revisions(self._document(reading.content)).of(self.pod)
        settings = _with_flags(chosen.settings, self.flags)
        _check_seed(settings)
        _check_store(settings)
        read_tls(settings.grpc)
        return Loaded(settings, digest(chosen.settings), chosen.revision, reading)

    def _document(self, content: bytes) -> Any:
        document = parsed(content, f"--settings: {self.path}")
        if not isinstance(document, dict):
            raise SettingsError(f"--settings: {self.path} must hold sections, as `scheduling:`")
        return document


def parsed(content: bytes, name: str) -> Any:
    """The document in a YAML or JSON file; {} where it is empty. Raises SettingsError, which begins with `name`."""
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # YAML then; JSON is tried first because it takes a hundredth of the time
    try:
        document = yaml.load(content, _YAML_LOADER)  # noqa: S506 - one of the two safe loaders
    except Exception as error:  # whatever a parser makes of such a file
        raise SettingsError(f"{name} is not YAML: {' '.join(str(error).split())}") from None
    return {} if document is None else document


def _with_flags(settings: Settings, flags: Flags) -> Settings:
    if not flags:
        return settings
    document = msgspec.to_builtins(settings)
    for section, fields in flags.items():
        document[section] |= fields
    return decode(document)


def _check_seed(settings: Settings) -> None:
    seed = settings.history.seed_file
    if seed is not None and not (os.path.isfile(seed) and os.access(seed, os.R_OK)):
        raise SettingsError(f"history.seedFile: {seed} is no file that can be read")


def _check_store(settings: Settings) -> None:
    history = settings.history
    needed = {"embedded": ("qdrant_edge", "qdrant-edge-py"), "server": ("qdrant_client", "qdrant-client")}
    if history.store != "memory" and find_spec(needed[history.store][0]) is None:
        package = needed[history.store][1]
        raise SettingsError(f"history.store: {history.store} needs {package}; run `pip install 'sagesched[store]'`")
    if history.server is None:
        return
    for field, file in (("apiKeyFile", history.server.api_key_file), ("caFile", history.server.ca_file)):
        if file and not (os.path.isfile(file) and os.access(file, os.R_OK)):
            raise SettingsError(f"history.server.{field}: {file} is no file that can be read")
