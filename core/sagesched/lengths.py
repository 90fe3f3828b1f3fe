"""The distribution of a request's output length: weighted atoms, in tokens (docs/method.md section 1)."""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

TAIL_STRETCH: FloatArray = np.array([1.063, 1.260, 2.177])
"""What follows the last atom: three equal atoms of a Pareto law of index 3 that starts at the tokens generated so far.

Index 3 means that a request that outlived every sample is expected to need half as much again as it has had. On public
traces the mean residual at the 90th to 99th percentile is 0.3 to 1.2 of the age, so it grows with the age and never
shrinks to nothing. The first two stretches are the law's 1/6 and 1/2 quantiles, the third makes the mean exact.
"""


class Atoms(NamedTuple):
    """Weighted lengths in any order, the same one more than once perhaps. `weights`: (n,), sum 1."""

    tokens: FloatArray
    weights: FloatArray


class LengthDistribution:
    """A discrete distribution over output lengths. Immutable and never empty.

    `tokens`: (n,) float64, strictly ascending, each at least 1. `weights`: (n,) float64, positive, sum 1.
    `cap_tokens`: no length is larger, the tail beyond the last atom included; infinite where no cap is known.
    """

    __slots__ = (
        "_after",
        "_apart",
        "_deviation",
        "_fewer",
        "_moments",
        "_under",
        "_up_to",
        "cap_tokens",
        "tokens",
        "weights",
    )

    def __init__(self, tokens: FloatArray, weights: FloatArray, cap_tokens: float = math.inf) -> None:
        """Atoms already sorted, distinct and normalised; `from_samples` and `mix` are the ways to get here."""
        self.cap_tokens = cap_tokens
        self.tokens = tokens
        self.weights = weights
        self._up_to: FloatArray | None = None
        self._after: tuple[FloatArray, FloatArray] | None = None
        self._moments: tuple[float, float] | None = None
        self._apart: float | None = None
        self._deviation: float | None = None
        # The last answers of `compress` and `truncate`: of what many requests share, each of them asks the same.
        self._fewer: tuple[int, LengthDistribution] | None = None
        self._under: LengthDistribution | None = None

    @classmethod
    def point(cls, tokens: float) -> "LengthDistribution":
        """All mass on one length."""
        return cls(np.array([max(1.0, float(tokens))]), np.ones(1))

    @classmethod
    def from_samples(
        cls,
        tokens: Sequence[float] | npt.NDArray[np.generic],
        censored: Sequence[bool] | BoolArray | None = None,
        weights: Sequence[float] | FloatArray | None = None,
    ) -> "LengthDistribution":
        """The product-limit (Kaplan-Meier 1958) estimate from samples of which some are right-censored.

        `tokens`: (n,), lengths; lengths below 1 count as 1. `censored`: (n,), True where the length is only known to be
        at least so long. `weights`: (n,), not negative. A censored length may still be exceeded, so mass that no
        complete sample claims goes to the tail beyond the largest one. Raises ValueError when no weight is positive.
        """
        lengths = np.maximum(np.asarray(tokens, dtype=np.float64), 1.0)
        mass = np.ones(lengths.size) if weights is None else np.asarray(weights, dtype=np.float64)
        cut = np.zeros(lengths.size, dtype=np.bool_) if censored is None else np.asarray(censored, dtype=np.bool_)
        if mass.shape != lengths.shape or cut.shape != lengths.shape:
            raise ValueError(
                f"tokens, censored and weights: one of each a sample, got {lengths.size}, {cut.size}, {mass.size}"
            )
        kept = mass > 0
        if not kept.any():
            raise ValueError("weights: a distribution needs at least one sample of positive weight")
        atoms = product_limit(lengths[kept], cut[kept], mass[kept])
        return cls.of_atoms(atoms.tokens, atoms.weights)

    @classmethod
    def of_atoms(cls, lengths: FloatArray, mass: FloatArray) -> "LengthDistribution":
        """Atoms in any order, also equal ones. `lengths`: (n,), each at least 1; `mass`: (n,), positive, any sum."""
        order = lengths.argsort()
        lengths, mass = lengths[order], mass[order]
        first = np.empty(lengths.size, dtype=np.bool_)
        first[0] = True
        np.not_equal(lengths[1:], lengths[:-1], out=first[1:])
        if not first.all():
            starts = np.flatnonzero(first)
            lengths, mass = lengths[starts], np.add.reduceat(mass, starts)
        return cls(lengths, mass / mass.sum())

    @classmethod
    def mix(cls, parts: Iterable[tuple[float, "Atoms | LengthDistribution"]]) -> "LengthDistribution":
        """The mixture of distributions by weight. Raises ValueError when no weight is positive."""
        used = [(w, part) for w, part in parts if w > 0]
        if not used:
            raise ValueError("mix: at least one part needs a positive weight")
        if len(used) == 1 and isinstance(used[0][1], LengthDistribution):
            return used[0][1]
        tokens = np.concatenate([part.tokens for _, part in used])
        return cls.of_atoms(tokens, np.concatenate([w * part.weights for w, part in used]))

    def truncate(self, max_tokens: float | None) -> "LengthDistribution":
        """The length under a cap: longer outputs end at `max_tokens`, so their mass lies there."""
        cap = self.cap_tokens if max_tokens is None else min(self.cap_tokens, max(1.0, float(max_tokens)))
        if cap == self.cap_tokens:
            return self
        if self._under is None or self._under.cap_tokens != cap:
            self._under = self._truncated(cap)
        return self._under

    def _truncated(self, cap: float) -> "LengthDistribution":
        if self.tokens[-1] <= cap:
            return LengthDistribution(self.tokens, self.weights, cap)
        last = int(self.tokens.searchsorted(cap))
        tokens, weights = self.tokens[: last + 1].copy(), self.weights[: last + 1].copy()
        tokens[last], weights[last] = cap, self.weights[last:].sum()
        return LengthDistribution(tokens, weights, cap)

    def remaining(self, generated_tokens: float) -> "LengthDistribution":
        """The tokens still to come, given more than `generated_tokens`; beyond the last atom, the tail's."""
        if generated_tokens <= 0:
            return self
        first = int(np.searchsorted(self.tokens, generated_tokens, side="right"))
        if first >= self.tokens.size:
            tail = self._tail_after(generated_tokens) - generated_tokens
            return self.of_atoms(tail, np.ones(tail.size))
        weights = self.weights[first:]
        return LengthDistribution(self.tokens[first:] - generated_tokens, weights / weights.sum())

    def mean_remaining(self, generated_tokens: float) -> float:
        """E[O - g | O > g] in tokens, in O(log n); beyond the last atom, the tail's mean."""
        if generated_tokens <= 0:
            return self.mean() - generated_tokens
        first = int(np.searchsorted(self.tokens, generated_tokens, side="right"))
        if first >= self.tokens.size:
            return float(self._tail_after(generated_tokens).mean() - generated_tokens)
        if self._after is None:
            self._after = (_sums_from(self.weights), _sums_from(self.weights * self.tokens))
        mass, total = self._after
        return float(total[first] / mass[first]) - generated_tokens

    def spread_remaining(self, generated_tokens: float) -> float:
        """The standard deviation of O given O > g, in tokens; beyond the last atom, the tail's."""
        return self.remaining(generated_tokens)._spread

    @property
    def _spread(self) -> float:
        if self._deviation is None:
            off = self.tokens - self.mean()
            self._deviation = math.sqrt(float(self.weights @ (off * off)))
        return self._deviation

    def _tail_after(self, tokens: float) -> FloatArray:
        """The tail under the cap; what has reached the cap and still runs is given one token more."""
        return np.minimum(tail_after(tokens), max(self.cap_tokens, tokens + 1.0))

    def compress(self, atoms: int) -> "LengthDistribution":
        """At most `atoms` atoms, each the mean of an equal share of the mass, so that the mean stays the same."""
        if self.tokens.size <= atoms:
            return self
        if self._fewer is None or self._fewer[0] != atoms:
            self._fewer = atoms, self._compressed(atoms)
        return self._fewer[1]

    def _compressed(self, atoms: int) -> "LengthDistribution":
        middle = self._cumulative - self.weights / 2
        group = np.minimum((middle * atoms).astype(np.intp), atoms - 1)
        mass = np.zeros(atoms)
        total = np.zeros(atoms)
        np.add.at(mass, group, self.weights)
        np.add.at(total, group, self.weights * self.tokens)
        used = mass > 0
        return self.of_atoms(total[used] / mass[used], mass[used])

    def mean(self) -> float:
        """E[O] in tokens."""
        return self.moments[0]

    @property
    def moments(self) -> tuple[float, float]:
        """E[O] and E[O^2]."""
        if self._moments is None:
            mass = self.weights * self.tokens
            self._moments = float(mass.sum()), float(mass @ self.tokens)
        return self._moments

    @property
    def half_difference(self) -> float:
        """E|O - O'| / 2 of two independent draws, in tokens."""
        if self._apart is None:
            below = self._cumulative[:-1]
            self._apart = float((below * (1.0 - below)) @ np.diff(self.tokens))
        return self._apart

    def cdf(self, tokens: float) -> float:
        """P(O <= tokens)."""
        count = int(np.searchsorted(self.tokens, tokens, side="right"))
        return min(1.0, float(self._cumulative[count - 1])) if count else 0.0

    def quantile(self, q: float) -> float:
        """The smallest length whose cdf is at least `q`, 0 <= q <= 1."""
        where = int(np.searchsorted(self._cumulative, q - 1e-12))
        return float(self.tokens[min(where, self.tokens.size - 1)])

    @property
    def _cumulative(self) -> FloatArray:
        if self._up_to is None:
            self._up_to = np.cumsum(self.weights)
        return self._up_to

    def __repr__(self) -> str:
        return f"LengthDistribution({self.tokens.size} atoms, mean {self.mean():.1f} tokens)"


def product_limit(lengths: FloatArray, cut: BoolArray, mass: FloatArray) -> Atoms:
    """Kaplan and Meier's atoms of samples; what no complete sample claims lies beyond the largest length.

    `lengths`: (n,), n at least 1, each at least 1; `cut`: (n,), True where censored; `mass`: (n,), positive.
    """
    if not cut.any():
        return Atoms(lengths, mass / mass.sum())
    times, where = np.unique(lengths, return_inverse=True)
    ended = np.bincount(where, weights=mass * ~cut, minlength=times.size)
    leaving = np.bincount(where, weights=mass, minlength=times.size)
    at_risk = np.cumsum(leaving[::-1])[::-1]
    survival = np.cumprod(1.0 - np.minimum(1.0, ended / at_risk))
    atoms = -np.diff(survival, prepend=1.0)
    claimed = atoms > 0
    times, atoms, beyond = times[claimed], atoms[claimed], float(survival[-1])
    if beyond > 1e-12:
        tail = tail_after(float(lengths.max()))
        times = np.concatenate((times, tail))
        atoms = np.concatenate((atoms, np.full(tail.size, beyond / tail.size)))
    return Atoms(times, atoms)


def _sums_from(values: FloatArray) -> FloatArray:
    return np.cumsum(values[::-1])[::-1]


def tail_after(tokens: float) -> FloatArray:
    """Equal atoms for a length known only to exceed `tokens`, each at least one token longer than the one before."""
    return np.maximum(TAIL_STRETCH * tokens, tokens + np.arange(1.0, TAIL_STRETCH.size + 1))
