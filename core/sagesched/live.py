"""Which settings take effect while a host runs, and what two versions of them differ in (docs/settings-live.md)."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from sagesched.settings import Settings, decode

LIVE = frozenset(
    {
        "scheduling",
        "preemption",
        "history.windowRows",
        "history.learn",
        "history.tenant",
        "history.shareTenants",
        "embedding.deadlineSeconds",
        "queue",
        "engine.mode",
        "engine.arguments",
        "engine.probe",
        "engine.force",
        "engine.slots",
        "engine.extraSlots",
        "engine.kvTokens",
        "engine.kvReserve",
        "engine.metricsIntervalSeconds",
        "engine.askForUsage",
        "gateway",
        "server",
        "grpc.maxStreams",
    }
)
"""Fields, and whole sections, that a running host takes over."""

RESTART: Mapping[str, str] = {
    "history.seedFile": "the seed file is read once, before the port opens",
    "history.store": "the store is opened once, before the port opens",
    "history.path": "the store is opened once, before the port opens",
    "history.server": "the store is opened once, before the port opens",
    "history.storeRows": "the store is opened once, before the port opens",
    "embedding.kind": "the window's records are vectors of the embedder it began with",
    "embedding.model": "the window's records are vectors of the embedder it began with",
    "engine.apiKeyFile": "the key is read once, so that a half-written one is never sent",
    "engine.apiKeyEnv": "a process's environment does not change",
    "grpc.listen": "the door's addresses are bound once, so that no open stream loses its own",
    "grpc.tlsCertFile": "the certificate is read once, with its key",
    "grpc.tlsKeyFile": "the certificate is read once, with its key",
    "grpc.tlsClientCaFile": "the certificate is read once, with its key",
    "grpc.reflection": "a server's services are those that it began with",
    "grpc.maxMessageBytes": "a server's limits are those that it began with",
}
"""Fields that are kept as they were at the start, and why."""


class Change(NamedTuple):
    """A field that two settings differ in; its path is in the names of the file, its values are plain."""

    path: str
    old: Any
    new: Any

    @property
    def restart(self) -> str | None:
        """Why it waits for a restart; None where it takes effect at once."""
        return next((why for field, why in RESTART.items() if _lies_in(self.path, field)), None)


class Merged(NamedTuple):
    """New settings as a running host can have them."""

    settings: Settings
    pending: tuple[Change, ...]
    """What waits for a restart; `settings` has the old values of these."""


def differences(old: Settings, new: Settings) -> tuple[Change, ...]:
    """Every field that differs, in the schema's order."""
    return tuple(_compared(msgspec.to_builtins(old), msgspec.to_builtins(new), ""))


def merged(running: Settings, wanted: Settings) -> Merged:
    """`wanted`, but for what cannot change in a running host. Raises SettingsError where the two do not go together."""
    pending = tuple(change for change in differences(running, wanted) if change.restart)
    if not pending:
        return Merged(wanted, ())
    document = msgspec.to_builtins(wanted)
    for change in pending:
        *sections, field = change.path.split(".")
        section = document
        for name in sections:
            section = section[name]
        section[field] = change.old
    return Merged(decode(document), pending)


def is_declared(path: str) -> bool:
    """Whether a field is said to be live or to need a restart, one of the two."""
    return any(_lies_in(path, field) for field in LIVE) != any(_lies_in(path, field) for field in RESTART)


def _lies_in(path: str, field: str) -> bool:
    return path == field or path.startswith(field + ".")


def _compared(old: dict[str, Any], new: dict[str, Any], at: str) -> Iterator[Change]:
    for name, value in old.items():
        other = new[name]
        if isinstance(value, dict) and isinstance(other, dict):
            yield from _compared(value, other, f"{at}{name}.")
        elif value != other:
            yield Change(at + name, value, other)
