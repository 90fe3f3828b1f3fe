"""What requests would have waited under two orders, on the same arrivals, service times and slots."""

import itertools
from collections import deque
from typing import NamedTuple

import numpy as np

from sagesched.replay import Replay
from sagesched.waiting import Rank

MAX_HELD = 20_000
"""Requests held; beyond it the comparison begins anew."""
KEPT = 1000


class Waits(NamedTuple):
    """How long requests waited in one order, in seconds."""

    mean_s: float
    p99_s: float


class Comparison:
    """Both orders are played in the same model (replay.py), so that the model's errors are in both.

    Nothing is compared while `slots` is None; another number of slots begins anew.
    """

    def __init__(self, max_wait_s: float) -> None:
        self._max_wait_s = max_wait_s
        self._slots: int | None = None
        self._keys = itertools.count()
        self._kept: deque[tuple[float, float]] = deque(maxlen=KEPT)
        self.requests = 0
        """Requests whose waits are known, and the seconds that they waited in each order, all together."""
        self.live_s = 0.0
        self.candidate_s = 0.0
        self._begin(None)

    def _begin(self, slots: int | None) -> None:
        self._slots = slots
        self._live, self._candidate = (Replay(slots or 1, self._max_wait_s) for _ in range(2))
        self._half: dict[int, list[float | None]] = {}

    def arrive(self, arrival_s: float, slots: int | None) -> int | None:
        """A request came; the key to tell its end by."""
        if slots != self._slots or len(self._half) >= MAX_HELD:
            self._begin(slots)
        if slots is None:
            return None
        key = next(self._keys)
        self._half[key] = [None, None]
        self._live.arrive(key, arrival_s)
        self._candidate.arrive(key, arrival_s)
        return key

    def end(self, key: int | None, service_s: float | None, live: Rank, candidate: Rank) -> None:
        """It ended after running so long, with these ranks when it began; None: it did not run, or was not served."""
        if key is None or key not in self._half:
            return
        if service_s is None:
            del self._half[key]
        for which, (replay, rank) in enumerate(((self._live, live), (self._candidate, candidate))):
            for played in replay.end(key, service_s, rank):
                self._half[played.key][which] = played.waited_s
                self._settle(played.key)

    def _settle(self, key: int) -> None:
        live_s, candidate_s = self._half[key]
        if live_s is None or candidate_s is None:
            return
        del self._half[key]
        self.requests += 1
        self.live_s += live_s
        self.candidate_s += candidate_s
        self._kept.append((live_s, candidate_s))

    def waits(self) -> tuple[Waits, Waits] | None:
        """Of the last thousand requests: in the live order, in the candidate's. None before the first."""
        if not self._kept:
            return None
        both = np.array(self._kept)
        means, tails = both.mean(axis=0), np.quantile(both, 0.99, axis=0)
        return Waits(float(means[0]), float(tails[0])), Waits(float(means[1]), float(tails[1]))
