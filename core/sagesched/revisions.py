"""A settings file with one revision, or with a stable one and a candidate that some pods run."""

from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta

from sagesched.settings import Section, Settings, SettingsError, decode, readable

PodName = Annotated[str, Meta(min_length=1, max_length=253)]
Pods = Annotated[tuple[PodName, ...], Meta(max_length=10_000)]
RevisionName = Literal["stable", "candidate"]


class Candidate(Section, frozen=True):
    """Settings that only some pods run."""

    pods: Pods = ()
    """Names of the pods that run the candidate."""
    settings: Settings = Settings()
    """What they run, whole: nothing is taken over from the stable revision."""


class Revisions(Section, frozen=True):
    """A file of two revisions. One that holds settings at its top is the same as one with `stable` alone."""

    stable: Settings = Settings()
    """What every other pod runs."""
    candidate: Candidate | None = None
    """What the pods that it names run."""

    def of(self, pod: str) -> "Chosen":
        """The revision that a pod runs."""
        if self.candidate is not None and pod in self.candidate.pods:
            return Chosen("candidate", self.candidate.settings)
        return Chosen("stable", self.stable)


class Chosen(NamedTuple):
    """The revision that one pod runs."""

    revision: RevisionName
    settings: Settings


class _CandidateShell(Section, frozen=True):
    pods: Pods = ()
    settings: dict[str, Any] | None = None


class _Shell(Section, frozen=True):
    """The revisions before their settings are looked at."""

    stable: dict[str, Any] | None = None
    candidate: _CandidateShell | None = None


def decode_revisions(document: Any) -> Revisions:
    """Both revisions from plain values, each validated whole, whoever runs it.

    Raises SettingsError whose message is `path: what is wrong`, the path beginning with the revision's.
    """
    if not (isinstance(document, dict) and ("stable" in document or "candidate" in document)):
        return Revisions(stable=decode(document))
    try:
        shell = msgspec.convert(document, _Shell)
    except msgspec.ValidationError as error:
        raise SettingsError(readable(error)) from None
    stable = _decoded(shell.stable, "stable")
    if shell.candidate is None:
        return Revisions(stable=stable)
    settings = _decoded(shell.candidate.settings, "candidate.settings")
    return Revisions(stable=stable, candidate=Candidate(pods=shell.candidate.pods, settings=settings))


def _decoded(document: dict[str, Any] | None, at: str) -> Settings:
    try:
        return decode(document)
    except SettingsError as error:
        raise SettingsError(f"{at}.{error}") from None
