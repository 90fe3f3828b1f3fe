"""What requests waited in shadow mode, and would have waited in our order (hindsight.py, docs/modes.md)."""

import itertools
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from sagesched.hindsight import Hindsight, Waits
from sagesched.waiting import Rank
from sagesched_sidecar.gate import Gate

KEPT = 1000
RECENT = 20


class ShadowEstimate:
    """See the module. `told` is given each request's waits and the mean that was saved of late."""

    def __init__(self, gate: Gate, max_wait_s: Callable[[], float], told: Callable[[Waits, float], None]) -> None:
        self._gate = gate
        self._max_wait_s = max_wait_s
        self._told = told
        self._keys = itertools.count()
        self._hindsight: Hindsight | None = None
        self._last: deque[float] = deque(maxlen=KEPT)
        self._waits: OrderedDict[str, Waits] = OrderedDict()

    def arrive(self, now_s: float) -> int | None:
        """A request came; the key to tell its end by, None while the engine's slots are not known."""
        slots = self._gate.slots
        if slots is None:
            return None
        if self._hindsight is None or self._hindsight.slots != slots:
            self._hindsight = Hindsight(slots, self._max_wait_s())
        key = next(self._keys)
        self._hindsight.arrive(key, now_s)
        return key

    def end(self, key: int | None, now_s: float, rank: Rank | None) -> None:
        """It ended; `rank` None: nothing is known of the place that it would have had."""
        if key is None or self._hindsight is None:
            return
        for waits in self._hindsight.end(key, now_s, rank):
            self._last.append(waits.saved_s)
            self._waits[waits.id] = waits
            if len(self._waits) > KEPT:
                self._waits.popitem(last=False)
            self._told(waits, self.mean_saved_s)

    @property
    def mean_saved_s(self) -> float:
        """Mean wait that our order would have saved, of the last 1000 requests; 0 before the first."""
        return sum(self._last) / len(self._last) if self._last else 0.0

    def of(self, request_id: str) -> Waits | None:
        """What is known of one of the last requests."""
        return self._waits.get(request_id)

    def status(self) -> dict[str, Any]:
        """For the status page; `order` has the last requests as they would have started."""
        return {
            "slots": self._gate.slots,
            "requests": len(self._last),
            "mean_wait_saved_s": self.mean_saved_s,
            "forgotten": self._hindsight.forgotten if self._hindsight else 0,
            "order": list(itertools.islice(reversed(self._waits), RECENT))[::-1],
        }
