"""The Gittins index of a cost of which only the distribution is known (docs/method.md section 3).

`G(a) = inf over allowed stops t > a of E[min(X, t) - a | X > a] / P(X <= t | X > a)`. With `F(t) = P(X <= t)` and
`U(t) = E[min(X, t)]` that is the least slope from the point `(F(a), U(a))` to the points `(F(t), U(t))`, so the first
edge of a lower convex hull. Both are kept as sums over what lies beyond, `F - 1` and `U - E[X]`, so that a
small mass at the far end keeps its digits.
"""

from collections.abc import Sequence
from enum import Enum

import numpy as np
import numpy.typing as npt

from sagesched.lengths import FloatArray


class Stopping(Enum):
    """Where a host may take the server away from a request before it is done."""

    NEVER = "never"
    BOUNDARIES = "boundaries"
    ANYWHERE = "anywhere"


class IndexTable:
    """The index of one cost distribution at any attained cost. Building is O(n log n), a query O(log n).

    The hull, which makes queries quick, is built for the second one: most requests are asked about once.

    `costs`: (n,) ascending, positive. `weights`: (n,) positive, sum 1. `boundaries`: ascending costs at which the host
    may stop; used by Stopping.BOUNDARIES alone. Completion is always a stop.
    """

    def __init__(
        self,
        costs: FloatArray,
        weights: FloatArray,
        stopping: Stopping,
        boundaries: FloatArray | Sequence[float] = (),
    ) -> None:
        self._costs = costs
        self._mass = _minus_sums_from(weights)
        self._spent = _minus_sums_from(weights * costs)
        self._stops = self._stops_for(stopping, np.asarray(boundaries, dtype=np.float64))
        self._done, self._used = self._curve(self._stops)
        self._jumps: list[npt.NDArray[np.intp]] | None = None
        self._asked = False

    @property
    def last(self) -> float:
        """The largest cost; at or beyond it the distribution says nothing, and the caller's tail takes over."""
        return float(self._costs[-1])

    def index(self, attained: float = 0.0) -> float:
        """G(attained), in units of cost. Raises ValueError at or beyond the largest cost."""
        if attained >= self._costs[-1]:
            raise ValueError(f"attained: {attained} is not below the largest cost {self._costs[-1]}")
        below = int(np.searchsorted(self._costs, attained, side="right"))
        done = float(self._mass[below])
        used = float(self._spent[below]) - attained * done
        first = int(np.searchsorted(self._stops, attained, side="right"))
        last = self._done.size - 1
        if first == last:
            stop = last
        elif self._asked:
            stop = self._tangent(first, done, used)
        else:
            stop = self._least(first, done, used)
        self._asked = True
        return float((self._used[stop] - used) / (self._done[stop] - done))

    def _stops_for(self, stopping: Stopping, boundaries: FloatArray) -> FloatArray:
        if stopping is Stopping.ANYWHERE:
            return self._costs
        last = self._costs[-1:]
        if stopping is Stopping.NEVER:
            return last
        inner = boundaries[(boundaries > 0) & (boundaries < last[0])]
        return np.concatenate((inner, last))

    def _curve(self, stops: FloatArray) -> tuple[FloatArray, FloatArray]:
        """F - 1 and U - E[X] at each stop."""
        if stops is self._costs:
            return self._mass[1:], self._spent[1:] - stops * self._mass[1:]
        below = np.searchsorted(self._costs, stops, side="right")
        done = self._mass[below]
        return done, self._spent[below] - stops * done

    def _least(self, first: int, done: float, used: float) -> int:
        """The stop at or after `first` with the least slope from (done, used), by looking at all of them."""
        run = self._done[first:] - done
        rise = self._used[first:] - used
        slopes = np.divide(rise, run, out=np.full(run.size, np.inf), where=run > 0)
        return first + int(slopes.argmin())

    def _tangent(self, first: int, done: float, used: float) -> int:
        """The stop at or after `first` with the least slope from (done, used): a search along the hull from `first`."""
        if not self._better_next(first, done, used):
            return first
        jumps = self._lifting()
        here = first
        for jump in reversed(jumps):
            there = int(jump[here])
            if self._better_next(there, done, used):
                here = there
        return int(jumps[0][here])

    def _better_next(self, here: int, done: float, used: float) -> bool:
        """Whether the next vertex of the hull has a smaller slope from the point than this one has."""
        ahead = int(self._lifting()[0][here])
        if ahead == here:
            return False
        x, y = self._done[here] - done, self._used[here] - used
        return bool((self._used[ahead] - used) * x < y * (self._done[ahead] - done))

    def _lifting(self) -> list[npt.NDArray[np.intp]]:
        """For each stop the next vertex of the lower hull to its right, and the 2nd, 4th, 8th... one."""
        if self._jumps is None:
            self._jumps = [self._hull()]
            while (self._jumps[-1] != self._done.size - 1).any():
                self._jumps.append(self._jumps[-1][self._jumps[-1]])
        return self._jumps

    def _hull(self) -> npt.NDArray[np.intp]:
        """One stack from right to left: what stays on it is the hull of what lies to the right."""
        done, used = self._done.tolist(), self._used.tolist()
        last = len(done) - 1
        ahead = np.full(last + 1, last, dtype=np.intp)
        stack = [last]
        for k in range(last - 1, -1, -1):
            while len(stack) > 1:
                near, far = stack[-1], stack[-2]
                if (used[near] - used[k]) * (done[far] - done[k]) < (used[far] - used[k]) * (done[near] - done[k]):
                    break
                stack.pop()
            ahead[k] = stack[-1]
            stack.append(k)
        return ahead


def _minus_sums_from(values: FloatArray) -> FloatArray:
    """(n + 1,): minus the sum of all from each place on; 0 after the last."""
    return np.concatenate((-np.cumsum(values[::-1])[::-1], np.zeros(1)))
