"""What history learns, kept beyond the life of the process, or not."""

import asyncio
from collections.abc import Awaitable
from typing import Protocol

from sagesched.history import Vector
from sagesched.request import Outcome, Request


class Journal(Protocol):
    """Keeps what history learns beyond the life of the process."""

    def record(self, request: Request, embedding: Vector, outcome: Outcome) -> Awaitable[None]:
        """Begin to write a record, now and whether or not anybody awaits; what it gives can be awaited more than once,
        returns once a crash cannot take the record any more, and raises where it could not be written."""


class MemoryJournal:
    """No disk: what history learns ends with the process."""

    def record(self, request: Request, embedding: Vector, outcome: Outcome) -> Awaitable[None]:
        """Done at once."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done
