"""What the operator found in the cluster when it looked, as values. A plan is made from these and from nothing else."""

from collections.abc import Mapping
from typing import Any, NamedTuple

Manifest = Mapping[str, Any]


class Running(NamedTuple):
    """The settings that a sidecar says it runs, from its metrics."""

    file_digest: str
    """Of its revision in the file that it read last and took over."""
    reload_ok: bool
    """Whether the file as it is now is in use."""


class SeenPod(NamedTuple):
    """A pod of the policy."""

    name: str
    ready: bool
    running: Running | None
    """None while its sidecar does not answer."""


class Seen(NamedTuple):
    """Everything that a plan looks at."""

    owned: Mapping[tuple[str, str], Manifest]
    """By kind and name: the objects that have the names which the policy's objects are to have."""
    pods: tuple[SeenPod, ...] = ()


def uid_of_owner(manifest: Manifest) -> str | None:
    """The uid of the controller that owns an object."""
    owners = manifest["metadata"].get("ownerReferences", ())
    return next((owner["uid"] for owner in owners if owner.get("controller")), None)
