"""Which mode is configured, which is in effect, and why (docs/modes.md). Values only; trial.py tries engines out."""

import logging
from collections.abc import Callable
from typing import Literal, NamedTuple

from sagesched.engine_arguments import proves_mode
from sagesched.settings import Engine, ModeName

Reason = Literal["configured", "arguments", "trial", "forced", "unverified", "refused"]
Verdict = Literal["ordered", "unordered", "undecided"]

_log = logging.getLogger(__name__)


class Finding(NamedTuple):
    """What a trial found, and how in words."""

    verdict: Verdict
    detail: str


class Mode(NamedTuple):
    """The mode at one moment."""

    configured: ModeName
    effective: ModeName
    reason: Reason
    detail: str = ""

    @property
    def leads_inside(self) -> bool:
        """Whether requests go in at once and the engine orders them."""
        return self.effective in ("priority", "engine")


class EngineMode:
    """Holds the mode in effect. What the engine was not shown to do is not relied on: the gate serves instead."""

    def __init__(self, engine: Engine, changed: Callable[[Mode], None] = lambda mode: None) -> None:
        self._engine = engine
        self._changed = changed
        self._finding: Finding | None = None
        self.now = self._decide()
        self._tell()

    @property
    def wants_trial(self) -> bool:
        """Whether only a trial can tell."""
        return self.now.reason == "unverified" and self._engine.probe

    def configure(self, engine: Engine) -> None:
        """Other settings from now on."""
        if engine.mode != self._engine.mode:
            self._finding = None
        self._engine = engine
        self._settle()

    def found(self, finding: Finding) -> None:
        """A trial of the engine that is there now has ended."""
        self._finding = finding
        self._settle()

    def engine_left(self) -> None:
        """The engine is gone; the next one in its place may be another."""
        self._finding = None
        self._settle()

    def _settle(self) -> None:
        before, self.now = self.now, self._decide()
        if before != self.now:
            self._tell()

    def _tell(self) -> None:
        self._changed(self.now)
        level = logging.WARNING if self.now.effective != self.now.configured else logging.INFO
        _log.log(level, "engine mode", extra=self.now._asdict())

    def _decide(self) -> Mode:
        mode = self._engine.mode
        if mode in ("gate", "shadow"):
            return Mode(mode, mode, "configured")
        if proves_mode(mode, self._engine.facts):
            return Mode(mode, mode, "arguments")
        if self._engine.force:
            return Mode(mode, mode, "forced")
        found = self._finding
        if found is not None and found.verdict == "ordered":
            return Mode(mode, mode, "trial", found.detail)
        if found is not None and found.verdict == "unordered":
            return Mode(mode, "gate", "refused", found.detail)
        detail = found.detail if found else "engine.arguments do not show it, and the engine was not tried out yet"
        return Mode(mode, "gate", "unverified", detail)
