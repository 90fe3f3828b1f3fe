"""Exchanges that are open, at either door."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager


class Traffic:
    """Counts them, so that a drain knows when it is over."""

    def __init__(self) -> None:
        self._open = 0
        self.idle = asyncio.Event()
        """Set while no exchange is open."""
        self.idle.set()

    @contextmanager
    def exchange(self) -> Iterator[None]:
        """One exchange, as long as it is open."""
        self._open += 1
        self.idle.clear()
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self.idle.set()
