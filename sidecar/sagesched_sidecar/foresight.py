"""When a request is predicted: before its turn if it has to wait, else while the engine works on it.

Embedding and searching take longer than all else that the sidecar does to a request. One that goes to the engine at
once does not wait for them: its rank matters to nobody, its prediction only to the memory it is taken to need.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

from sagesched.history import Vector
from sagesched_sidecar.gate import Place


class Refiner(Protocol):
    """Who predicts a place anew: the gate, or a visit that listens in."""

    def refine(self, place: Place, embedding: Vector | None) -> None:
        """See Gate.refine."""


class Foresight:
    """The embedding of one request, asked for once at most. `inline`: whether it is there without waiting."""

    def __init__(
        self,
        refiner: Refiner,
        embed: Callable[[], Awaitable[Vector | None]],
        clock: Callable[[], float],
        *,
        inline: bool,
    ) -> None:
        self._refiner = refiner
        self._embed = embed
        self._clock = clock
        self._inline = inline
        self._task: asyncio.Task[None] | None = None
        self.seconds: float | None = None
        """How long the embedding took; None where it was not asked for."""

    async def embedding(self) -> Vector | None:
        """The embedding; None on trouble, and on a second call."""
        if self.seconds is not None:
            return None
        begun_s, self.seconds = self._clock(), 0.0
        vector = await self._embed()
        self.seconds = self._clock() - begun_s
        return vector

    async def at_once(self) -> Vector | None:
        """The embedding where it is there without waiting: what meets a queue is ranked by it from the first."""
        return await self.embedding() if self._inline else None

    async def refine(self, place: Place) -> None:
        """Predict the request anew by its embedding, if that was not done yet."""
        self._refiner.refine(place, await self.embedding())

    def refine_soon(self, place: Place) -> None:
        """The same as soon as the event loop has nothing more urgent."""
        if self.seconds is None and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self.refine(place))

    async def settle(self, place: Place) -> None:
        """Before an answered request ends: refine it now, or where that takes waiting, let it be learnt from later."""
        if self._inline:
            await self.refine(place)
        else:
            self.refine_soon(place)

    async def complete(self, place: Place) -> None:
        """Refine it now, however long that takes; what is under way already is waited for."""
        if self._task is None:
            await self.refine(place)
        else:
            await asyncio.shield(self._task)
