"""Policies by name. Each turns what is believed of a request into a key; smaller goes first."""

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

import numpy as np

from sagesched.calibration import Unit
from sagesched.cost import Cost
from sagesched.gittins import IndexTable, Stopping
from sagesched.lengths import FloatArray, LengthDistribution
from sagesched.request import Request
from sagesched.settings import Scheduling


class Belief:
    """What a policy may know: the request, the distribution of its output length, and what it has had so far."""

    __slots__ = ("_settings", "_stopping", "_tables", "cost", "distribution", "generated_tokens", "request")

    def __init__(
        self, request: Request, distribution: LengthDistribution, stopping: Stopping, settings: Scheduling
    ) -> None:
        self.request = request
        self.distribution = distribution
        self.generated_tokens = 0
        self.cost = Cost.of(request.prompt_tokens, alpha=settings.alpha, uncached_tokens=request.uncached_tokens)
        self._stopping = stopping
        self._settings = settings
        self._tables: dict[Stopping, IndexTable] = {}

    def mean_tokens(self) -> float:
        """E[O - g | O > g]: tokens still to come."""
        return self.distribution.mean_remaining(self.generated_tokens)

    def spread_tokens(self) -> float:
        """The standard deviation of what is still to come, in tokens."""
        return self.distribution.spread_remaining(self.generated_tokens)

    def mean_cost(self) -> float:
        """E[X - a | X > a], all choices together."""
        return self._remaining_cost(Stopping.NEVER)

    def index(self, stopping: Stopping | None = None) -> float:
        """The Gittins index of the remaining cost over the host's stopping times, or over those given."""
        stopping = stopping or self._stopping
        if stopping is Stopping.NEVER:
            return self.mean_cost()
        return self._remaining_cost(stopping)

    def _remaining_cost(self, stopping: Stopping) -> float:
        generated = float(self.generated_tokens)
        attained = self.cost.attained(generated)
        atoms = self.distribution
        if generated >= atoms.tokens[-1]:
            tail = atoms.remaining(generated)
            atoms = LengthDistribution(tail.tokens + generated, tail.weights)
        choices = self.request.features.choices
        if stopping is Stopping.NEVER:
            return choices * self._mean_beyond(atoms, generated, attained)
        return choices * self._table_of(atoms, stopping).index(attained)

    def _mean_beyond(self, atoms: LengthDistribution, generated: float, attained: float) -> float:
        first = int(np.searchsorted(atoms.tokens, generated, side="right")) if generated > 0 else 0
        if not first:
            return self.cost.mean(atoms.moments) - attained
        weights = atoms.weights[first:]
        return float(self.cost.total(atoms.tokens[first:]) @ weights) / float(weights.sum()) - attained

    def _table_of(self, atoms: LengthDistribution, stopping: Stopping) -> IndexTable:
        known = self._tables.get(stopping) if atoms is self.distribution else None
        if known is not None:
            return known
        table = IndexTable(self.cost.total(atoms.tokens), atoms.weights, stopping, self._boundaries(atoms))
        if atoms is self.distribution:
            self._tables[stopping] = table
        return table

    def _boundaries(self, atoms: LengthDistribution) -> FloatArray:
        step = self._settings.bucket_tokens
        return self.cost.total(np.arange(step, atoms.tokens[-1], step, dtype=np.float64))


class Score(NamedTuple):
    """What a request is worth waiting for, before the time unit and its arrival come in."""

    amount: float
    """In the policy's own measure: tokens, or cost."""
    tokens: float = 0.0
    """Output tokens still to come, of one choice."""


class Policy(Protocol):
    """One order. The score says what a request is worth waiting for; the key turns it into a place among all.

    `refreshes`: whether the score changes as tokens come. `timed`: whether the key depends on the time unit.
    """

    refreshes: bool
    timed: bool

    def score(self, belief: Belief) -> Score:
        """What is believed of the request."""

    def key(self, request: Request, score: Score, unit: Unit) -> float:
        """Smaller goes first."""


class Fcfs:
    """First come, first served."""

    refreshes = False
    timed = False

    def score(self, belief: Belief) -> Score:
        return Score(0.0)

    def key(self, request: Request, score: Score, unit: Unit) -> float:
        return request.arrival_s


class _SmallestFirst:
    """The score over the weight, without a bound on waiting."""

    refreshes = True
    timed = False

    def key(self, request: Request, score: Score, unit: Unit) -> float:
        return score.amount / request.weight


class Sjf(_SmallestFirst):
    """Shortest mean predicted output first."""

    def score(self, belief: Belief) -> Score:
        return Score(belief.mean_tokens() * belief.request.features.choices)


class MeanCost(_SmallestFirst):
    """Smallest mean predicted cost first: the index of a host that cannot preempt."""

    def score(self, belief: Belief) -> Score:
        return Score(belief.mean_cost())


class Gittins(_SmallestFirst):
    """The paper's order: the index over every stopping time."""

    def score(self, belief: Belief) -> Score:
        return Score(belief.index(Stopping.ANYWHERE))


class SageSched:
    """The index over the stopping times that the host has, with the tail boost of docs/method.md section 5.

    `key = arrival - own - (1/gamma) * ln(1 / (1 - exp(-gamma * s)))`: s is the index in engine seconds, cost over the
    mean cost times the mean service time; own is how long the request itself is expected to run, so that what is held
    back is the time of its last token and not that of its start (docs/adr/0003-boost.md). The setting is gamma times
    the mean service time, so that one value fits an engine of any speed; 0 leaves the plain index.
    """

    refreshes = True
    timed = True

    def __init__(self, boost: float) -> None:
        self._boost = boost

    def score(self, belief: Belief) -> Score:
        return Score(belief.index(), belief.mean_tokens())

    def key(self, request: Request, score: Score, unit: Unit) -> float:
        if self._boost == 0:  # in no unit, so that keys of any time compare
            return score.amount / request.weight
        relative = score.amount / request.weight / unit.mean_cost
        must_start_s = request.arrival_s - score.tokens * unit.token_s
        return must_start_s + unit.mean_service_s / self._boost * boosted(self._boost * relative)


def boosted(x: float) -> float:
    """`ln(1 - exp(-x))`, for x > 0 exact at both ends: about ln(x) when small, about -exp(-x) when large."""
    x = max(x, 1e-300)
    return math.log(-math.expm1(-x)) if x < 1 else math.log1p(-math.exp(-x))


POLICIES: dict[str, Callable[[Scheduling], Policy]] = {
    "fcfs": lambda _: Fcfs(),
    "sjf": lambda _: Sjf(),
    "mean": lambda _: MeanCost(),
    "gittins": lambda _: Gittins(),
    "sagesched": lambda settings: SageSched(settings.boost),
}


def policy_of(settings: Scheduling) -> Policy:
    """The policy that the settings name."""
    return POLICIES[settings.policy](settings)
