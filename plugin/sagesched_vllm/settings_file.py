"""The settings file, as the sidecar beside the engine reads it, watched by a thread: no step waits for a disk."""

import logging
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from sagesched.revisions import RevisionName, decode_revisions
from sagesched.settings import Settings, SettingsError, digest
from sagesched_vllm.log import LOGGER

POLL_SECONDS = 1.0
MAX_FILE_BYTES = 2 << 20
PATH_VARIABLE = "SAGESCHED_SETTINGS"
PATH_MEMBER = "sagesched_settings"

_log = logging.getLogger(LOGGER)


class Loaded(NamedTuple):
    """Settings as the file has them for this pod."""

    settings: Settings
    digest: str
    revision: RevisionName = "stable"


DEFAULTS = Loaded(Settings(), digest(Settings()))


def settings_path(additional: object, environment: Mapping[str, str] = os.environ) -> Path | None:
    """Where the file is: `additional_config` of the engine, else the environment, else nowhere."""
    named = additional.get(PATH_MEMBER) if isinstance(additional, Mapping) else None
    path = named or environment.get(PATH_VARIABLE)
    return Path(str(path)) if path else None


def pod_name(environment: Mapping[str, str] = os.environ) -> str:
    """This pod's name, by which a file with a candidate chooses."""
    return environment.get("POD_NAME") or environment.get("HOSTNAME") or ""


def read(path: Path) -> bytes:
    """The file's bytes. Raises SettingsError."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise SettingsError(f"{path}: is larger than {MAX_FILE_BYTES} bytes")
    return content


def load(content: bytes, pod: str) -> Loaded:
    """The settings in it. Raises SettingsError, whose message begins with the path of what is wrong."""
    chosen = decode_revisions(_parsed(content)).of(pod)
    scheduling = structs.replace(chosen.settings.scheduling, shadow=None)  # compared in the sidecar alone
    return Loaded(structs.replace(chosen.settings, scheduling=scheduling), digest(chosen.settings), chosen.revision)


def _parsed(content: bytes) -> Any:
    if not content.strip():
        raise SettingsError("the file: is empty; write {} for the defaults")
    try:
        document = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        document = _yaml(content)
    if not isinstance(document, dict):
        raise SettingsError("the file: must hold sections, as `scheduling:`")
    return document


def _yaml(content: bytes) -> Any:
    try:
        import yaml  # vLLM brings it along; a file in JSON needs it not
    except ImportError:
        raise SettingsError("the file: is not JSON, and YAML needs pyyaml; install it or write JSON") from None
    try:
        return yaml.safe_load(content)
    except Exception as error:  # whatever a parser makes of such a file
        raise SettingsError(f"the file: is not YAML: {' '.join(str(error).split())}") from None


class Watch:
    """Looks at the file each second. `take` gives what is new, once, to the thread that asks.

    Raises SettingsError when the file is wrong at the start. Later a wrong one is refused, and the last good one stays.
    """

    def __init__(self, path: Path | None, pod: str, *, poll_s: float = POLL_SECONDS) -> None:
        self._path = path
        self._pod = pod
        self._poll_s = poll_s
        self._seen = b"" if path is None else read(path)
        self.first = DEFAULTS if path is None else load(self._seen, pod)
        self._unstable: bytes | None = None
        self._trouble: str | None = None
        self._news: list[Loaded | SettingsError] = []
        self._closed = threading.Event()
        if path is not None:
            threading.Thread(target=self._run, name="sagesched-settings", daemon=True).start()

    def take(self) -> Loaded | SettingsError | None:
        """What the file has come to since it was asked for last: settings, or why they are not used."""
        return self._news.pop(0) if self._news else None

    def close(self) -> None:
        """Look no more."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(self._poll_s):
            try:
                self.look()
            except Exception:  # the next look comes, whatever the file did to this one
                _log.exception("SageSched: the settings file cannot be looked at")

    def look(self) -> None:
        """Read the file once. A change counts once two readings agree: one that is being written is not cut short."""
        assert self._path is not None
        try:
            content = read(self._path)
        except SettingsError as error:
            self._refuse(error)
            return
        self._trouble = None
        if content == self._seen:
            self._unstable = None
            return
        if content != self._unstable:
            self._unstable = content
            return
        self._seen, self._unstable = content, None
        try:
            self._put(load(content, self._pod))
        except SettingsError as error:
            self._put(error)

    def _refuse(self, error: SettingsError) -> None:
        """Of a file that is gone, once and not at each look."""
        if str(error) != self._trouble:
            self._trouble = str(error)
            self._put(error)

    def _put(self, news: Loaded | SettingsError) -> None:
        if len(self._news) >= 8:  # nobody steps: only the newest count
            del self._news[0]
        self._news.append(news)
