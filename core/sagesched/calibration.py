"""What served requests teach of the engine: the time unit of the boost (docs/method.md section 5)."""

from typing import NamedTuple

MEMORY = 0.98
"""Weight that a served request keeps when the next one comes: the last 50 or so count."""

MIN_SERVED = 5
"""Completions before they are believed."""


class Unit(NamedTuple):
    """What turns a cost into engine seconds, `cost / mean_cost * mean_service_s`, and tokens into a request's own."""

    mean_cost: float = 1.0
    """Mean cost of a request."""
    mean_service_s: float = 1.0
    """Seconds between completions while requests wait."""
    token_s: float = 0.0
    """Seconds that a running request takes for a token of its output; 0 while unknown."""

    def is_near(self, other: "Unit", factor: float) -> bool:
        """Whether all parts agree within a factor."""
        return all(
            (mine < factor * its and its < factor * mine) or mine == its for mine, its in zip(self, other, strict=True)
        )


class ServiceUnit:
    """Calibrates the unit from decayed sums over completions.

    Seconds count only while requests wait: an engine with nothing to wait for says nothing of its speed. Until
    MIN_SERVED were served, the mean cost is that of the predictions, and a service takes one second.
    """

    def __init__(self) -> None:
        self._predicted = _DecayedMean()
        self._served = _DecayedMean()
        self._service_s = _DecayedMean()
        self._token_s = _DecayedMean()
        self._since_s: float | None = None
        self._busy_s = 0.0

    def unit(self) -> Unit:
        """The unit as known now."""
        cost = self._served if self.knows_cost else self._predicted
        service_s = self._service_s.mean if self._service_s.count >= MIN_SERVED else 0.0
        token_s = self._token_s.mean if self._token_s.count >= MIN_SERVED else 0.0
        return Unit(cost.mean or 1.0, service_s or 1.0, token_s)

    @property
    def knows_cost(self) -> bool:
        """Whether so many were served that predictions no longer stand in for them."""
        return self._served.count >= MIN_SERVED

    def forget_costs(self) -> None:
        """Costs are measured otherwise from now on: until enough were served, predictions stand in again."""
        self._predicted, self._served = _DecayedMean(), _DecayedMean()

    def predicted(self, cost: float) -> None:
        """A request came that is expected to cost that much."""
        self._predicted.add(cost)

    def busy(self, waiting: bool, now_s: float) -> None:
        """Tell whether requests wait from now on."""
        if self._since_s is not None:
            self._busy_s += max(0.0, now_s - self._since_s)
        self._since_s = now_s if waiting else None

    def completion(self, cost: float, token_s: float | None, now_s: float) -> None:
        """One more request was served: its cost, and how long it ran for each token, where that is known."""
        self._served.add(cost)
        if token_s is not None:
            self._token_s.add(token_s)
        if self._since_s is not None:
            self.busy(True, now_s)
            self._service_s.add(self._busy_s)
        self._busy_s = 0.0


class _DecayedMean:
    """A mean in which older values count less."""

    def __init__(self) -> None:
        self.count = 0
        self._weight = 0.0
        self._sum = 0.0

    @property
    def mean(self) -> float:
        return self._sum / self._weight if self._weight else 0.0

    def add(self, value: float) -> None:
        self.count += 1
        self._sum = self._sum * MEMORY + value
        self._weight = self._weight * MEMORY + 1.0
