"""Settings while the sidecar runs: the file is watched, and what it holds is swapped in whole or not at all."""

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Literal, NamedTuple

from sagesched.idle import Idle, idle_fields
from sagesched.live import Change, differences, merged
from sagesched.revisions import RevisionName
from sagesched.settings import Settings, SettingsError, digest
from sagesched_sidecar.settings_file import Loaded, Reading, Source

POLL_SECONDS = 1.0
SETTLE_SECONDS = 0.1
"""A change counts once two readings so far apart agree: a file that is being written is not cut short."""

Result = Literal["applied", "pending", "unchanged", "refused", "unreadable", "failed"]
SUCCESSES = ("applied", "pending", "unchanged")

_log = logging.getLogger(__name__)


class Effective(NamedTuple):
    """The settings that are in use, as one value: whoever decides by them takes it once and looks at nothing else."""

    settings: Settings
    digest: str
    """Of `settings`: flags, and what waits for a restart, are in it."""
    file_digest: str
    """Of this pod's revision in the file. The same where no flag and nothing pending changes it."""
    revision: RevisionName
    pending: tuple[Change, ...]
    """What the file asks for and only a restart brings."""
    idle: tuple[Idle, ...]


class Reload(NamedTuple):
    """How the last change of the file went, in seconds of the wall clock."""

    result: Result
    at_s: float
    problem: str | None = None
    success_at_s: float = 0.0


class LiveSettings:
    """Holds what is in use, and lets each part of the sidecar know when it changes. One event loop owns it."""

    def __init__(self, source: Source, loaded: Loaded, *, wall_clock: Callable[[], float] = time.time) -> None:
        self._source = source
        self._wall_clock = wall_clock
        self._seen = loaded.reading
        self._parts: list[Callable[[Effective], object]] = []
        self._observers: list[Callable[[Reload], object]] = []
        self.now = _effective(loaded, loaded.settings)
        self.last = Reload("applied", wall_clock(), None, wall_clock())

    def also(self, part: Callable[[Effective], object]) -> None:
        """A part that takes new settings over. It must not wait; when one raises, all get the old ones again."""
        self._parts.append(part)

    def observe(self, observer: Callable[[Reload], object]) -> None:
        """Who is told of each reload, whatever its result."""
        self._observers.append(observer)

    async def watch(self, poll_s: float = POLL_SECONDS) -> None:
        """Look at the file until cancelled."""
        while self._source.path is not None:
            await asyncio.sleep(poll_s)
            try:
                await self.look()
            except Exception:  # the next look comes, whatever the file or a part did to this one
                _log.exception("the settings file cannot be looked at")

    async def look(self) -> None:
        """Read the file once, and take it over where its content changed. Links and times are not looked at."""
        reading = await asyncio.to_thread(self._source.read)
        if reading == self._seen:
            return
        await asyncio.sleep(SETTLE_SECONDS)
        if reading != await asyncio.to_thread(self._source.read):
            return
        self._seen = reading
        try:
            loaded = await asyncio.to_thread(self._load, reading)
        except SettingsError as error:
            self._tell("unreadable" if reading.problem else "refused", str(error))
            return
        except Exception as error:  # a file of a form that nobody thought of is refused like any other wrong one
            self._tell("refused", f"the file: cannot be understood ({type(error).__name__})")
            return
        self._take_over(loaded)

    def _load(self, reading: Reading) -> Loaded:
        if reading.problem is None and not reading.content.strip():
            raise SettingsError("the file: is empty; write {} for the defaults")
        return self._source.load(reading)

    def _take_over(self, loaded: Loaded) -> None:
        try:
            now = _effective(loaded, self.now.settings)
        except SettingsError as error:
            self._tell("refused", f"{error} (with what only a restart changes)")
            return
        changed = [change.path for change in differences(self.now.settings, now.settings)]
        if changed and not self._swap(now):
            self._tell("failed", "a part of the sidecar could not take the settings over; see the log")
            return
        anew = now != self.now
        self.now = now
        self._tell("pending" if now.pending else "applied" if anew else "unchanged", None, changed)

    def _swap(self, now: Effective) -> bool:
        """Give every part the new settings; when one fails, all of them the old ones again."""
        try:
            for part in self._parts:
                part(now)
        except Exception:  # the last good settings stay, whatever a part makes of these
            _log.exception("settings could not be taken over")
            for part in self._parts:
                with suppress(Exception):
                    part(self.now)
            return False
        return True

    def _tell(self, result: Result, problem: str | None, changed: list[str] | None = None) -> None:
        at_s = self._wall_clock()
        good = result in SUCCESSES
        self.last = Reload(result, at_s, problem, at_s if good else self.last.success_at_s)
        facts = {"result": result, "digest": self.now.digest, "revision": self.now.revision, "changed": changed or []}
        if good:
            _log.info("settings read", extra=facts | {"pending": [change.path for change in self.now.pending]})
        else:
            _log.warning("settings not taken over; the last good ones stay", extra=facts | {"problem": problem})
        for observer in self._observers:
            observer(self.last)


def _effective(loaded: Loaded, running: Settings) -> Effective:
    settings, pending = merged(running, loaded.settings)
    return Effective(
        settings, digest(settings), loaded.file_digest, loaded.revision, pending, idle_fields(loaded.settings)
    )
