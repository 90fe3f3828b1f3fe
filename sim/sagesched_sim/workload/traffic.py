"""A workload in two parts: what the scheduler learnt from, and, always later, what is measured."""

from collections.abc import Iterable, Sequence
from typing import Self

import msgspec
import numpy as np

from .exchange import Exchange, WorkloadError
from .topics import TopicTraffic


class Traffic(msgspec.Struct, frozen=True):
    """One workload, split in time."""

    history: tuple[Exchange, ...]
    """The earlier part: may be learnt from."""
    measured: tuple[Exchange, ...]
    """The later part, each prompt once: is served and measured, never learnt from beforehand."""

    @classmethod
    def split(cls, exchanges: Sequence[Exchange], *, history: int, requests: int) -> Self:
        """The last part of `exchanges` (in time order) that holds `requests` different prompts, and what came before.

        A measured prompt that stands in the earlier part too is real traffic and stays. Raises WorkloadError
        when nothing would be left to learn from.
        """
        start = _start_of_measured(exchanges, requests)
        if not start:
            raise WorkloadError(
                f"{len(exchanges)} exchanges hold no {requests} different prompts and an earlier part to learn from;"
                " ask for fewer --requests or bring more data"
            )
        return cls(tuple(exchanges[max(0, start - history) : start]), _distinct(exchanges[start:]))


def synthetic(seed: int, *, history: int, requests: int) -> Traffic:
    """Topics of that seed (topics.py), all prompts different."""
    rng = np.random.default_rng([seed, 0])
    exchanges = TopicTraffic(rng).draw(history + requests, rng)
    return Traffic.split(exchanges, history=history, requests=requests)


def shuffled(exchanges: Sequence[Exchange], seed: int) -> tuple[Exchange, ...]:
    """An order in time for records that have none."""
    order = np.random.default_rng([seed, 1]).permutation(len(exchanges))
    return tuple(exchanges[index] for index in order.tolist())


def _start_of_measured(exchanges: Sequence[Exchange], requests: int) -> int:
    """Where the shortest tail with that many different prompts begins; 0 when nothing would come before it."""
    seen: set[str] = set()
    for index in range(len(exchanges) - 1, -1, -1):
        seen.add(exchanges[index].prompt)
        if len(seen) == requests:
            return index
    return 0


def _distinct(exchanges: Iterable[Exchange]) -> tuple[Exchange, ...]:
    """The first exchange of each prompt, in order."""
    first: dict[str, Exchange] = {}
    for exchange in exchanges:
        first.setdefault(exchange.prompt, exchange)
    return tuple(first.values())
