"""A store in a process of its own, which is how a host that serves requests has it.

Qdrant Edge holds Python's lock during its calls (a flush took 70 to 190 ms, a vacuum 700 ms), and it writes through
memory maps, on which a full or broken disk ends the process. A client of a Qdrant server takes 100 MB, and its JSON the
host's time. All would be the host's trouble; here they are not.
"""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from sagesched_store.messages import (
    ANSWER,
    Answer,
    Append,
    Ask,
    Close,
    Count,
    DeleteBefore,
    DeleteTenant,
    Failed,
    HowMany,
    Look,
    Newest,
    Opening,
    Paged,
    Ready,
    Records,
    Seen,
    Tenants,
    Turn,
    Who,
    packed,
    read_message,
    reader_until,
)
from sagesched_store.place import Place
from sagesched_store.protocol import Changes, Health, Page, StoreError, check_space
from sagesched_store.record import Record, Space

_T = TypeVar("_T", bound=Answer)
OPEN_SECONDS = 60.0
ANSWER_SECONDS = 30.0
SLOWEST_ROWS_PER_SECOND = 1000
"""Rows that are read take longer the more they are: 17,000 a second on the slowest machine tried, under load."""


class StoreApart:
    """See protocol.Store. Raises StoreError when it cannot be opened, and `died` or `timeout` once its process is gone.

    Requests to the other process wait without Python's lock.
    """

    def __init__(self, place: Place, space: Space, rows: int) -> None:
        self.space = space
        opening = Opening(place, space.embedder, space.dimensions, rows)
        self.process = subprocess.Popen(  # noqa: S603  our own module, by this interpreter
            [sys.executable, "-m", "sagesched_store", msgspec.json.encode(opening).decode()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        try:
            self.health: Health = self._answer(Ready, OPEN_SECONDS).health
        except StoreError:
            self._end()
            raise

    def append(self, records: Sequence[Record]) -> None:
        """See protocol.Store."""
        check_space(records, self.space)
        self._asked(Append(list(records)), Count)

    def newest(self, limit: int, tenant: str | None = None, models: Sequence[str] = ()) -> list[Record]:
        """See protocol.Store."""
        answer = self._asked(Newest(limit, tenant, tuple(models)), Records, _reading_s(limit))
        self.health = answer.health
        return answer.records

    def changes(self, since_s: float, limit: int) -> Changes:
        """See protocol.Store."""
        return self._asked(Look(since_s, limit), Seen, _reading_s(limit)).changes

    def page(self, after: str | None, limit: int) -> Page:
        """See protocol.Store."""
        return self._asked(Turn(after, limit), Paged, _reading_s(limit)).page

    def tenants(self) -> dict[str, int]:
        """See protocol.Store."""
        return self._asked(Who(), Tenants).counts

    def count(self, tenant: str | None = None) -> int:
        """See protocol.Store."""
        return self._asked(HowMany(tenant), Count).count

    def delete_tenant(self, tenant: str) -> int:
        """See protocol.Store."""
        return self._asked(DeleteTenant(tenant), Count).count

    def delete_before(self, finished_s: float) -> int:
        """See protocol.Store."""
        return self._asked(DeleteBefore(finished_s), Count).count

    def close(self) -> None:
        """See protocol.Store."""
        if self.process.poll() is None:
            try:
                self._asked(Close(), Count)
            finally:
                self._end()
        self._end()

    def _asked(self, ask: Ask, kind: type[_T], within_s: float | None = None) -> _T:
        assert self.process.stdin is not None
        if self.process.stdin.closed:
            raise StoreError("closed", "the store is closed")
        data = memoryview(packed(ask))
        try:
            while data:
                data = data[self.process.stdin.write(data) :]
        except OSError:
            raise self._gone() from None
        return self._answer(kind, within_s or ANSWER_SECONDS)

    def _answer(self, kind: type[_T], within_s: float) -> _T:
        assert self.process.stdout is not None
        try:
            body = read_message(reader_until(self.process.stdout.fileno(), os.read, time.monotonic() + within_s))
        except TimeoutError:
            self._end()
            raise StoreError("timeout", f"the store's process did not answer within {within_s:g} s") from None
        if body is None:
            raise self._gone()
        answer = ANSWER.decode(body)
        if isinstance(answer, Failed):
            raise StoreError(answer.reason, answer.message)
        if not isinstance(answer, kind):
            self._end()
            raise StoreError("died", f"the store's process answered {type(answer).__name__}")
        return answer

    def _gone(self) -> StoreError:
        self._end()
        return StoreError("died", f"the store's process ended with {self.process.returncode}")

    def _end(self) -> None:
        """The process is over and its pipes are closed, whatever came before."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self.process.wait(timeout=1.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _reading_s(rows: int) -> float:
    return ANSWER_SECONDS + rows / SLOWEST_ROWS_PER_SECOND
