"""The demo's figures: summaries, rank correlation, and paired bounds by bootstrap. Pure."""

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

BLOCK = 40
"""Successive arrivals share a queue, so the bootstrap draws them together, this many at a time."""
RESAMPLES = 2000


class Summary(msgspec.Struct, frozen=True):
    """A distribution of times in engine seconds."""

    mean: float
    p50: float
    p95: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: FloatArray) -> "Summary":
        """Of at least one value; quantiles lie between neighbours where they must."""
        p50, p95, p99 = np.quantile(values, (0.5, 0.95, 0.99)).tolist()
        return cls(float(values.mean()), p50, p95, p99, float(values.max()))


class Ratio(msgspec.Struct, frozen=True):
    """A policy's figure over the reference's, with its 95 % bounds."""

    ratio: float
    low: float
    high: float


def _quantile(level: float) -> Callable[[FloatArray], FloatArray]:
    return lambda rows: np.quantile(rows, level, axis=-1)


FIGURES: dict[str, Callable[[FloatArray], FloatArray]] = {
    "mean": lambda rows: rows.mean(axis=-1),
    "p50": _quantile(0.5),
    "p95": _quantile(0.95),
    "p99": _quantile(0.99),
}


def ranks(values: FloatArray) -> FloatArray:
    """Ranks from 0; equal values share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    shared: FloatArray = (last - (counts + 1) / 2)[inverse]
    return shared


def spearman(first: FloatArray, second: FloatArray) -> float:
    """Rank correlation; 0 where one of them does not vary."""
    a, b = ranks(first), ranks(second)
    if a.std() == 0 or b.std() == 0:
        return 0.0
    return float(np.corrcoef(a, b)[0, 1])


def paired_ratios(
    reference: Sequence[FloatArray], other: Sequence[FloatArray], rng: np.random.Generator
) -> dict[str, Ratio]:
    """Ratios of the pooled figures, other over reference, with 95 % bounds by a paired block bootstrap.

    One array a seed, in order of arrival; the same requests stand at the same places on both sides, and each resample
    takes the same blocks of both.
    """
    pooled = np.concatenate(reference), np.concatenate(other)
    draws = _block_draws([values.size for values in reference], rng)
    result = {}
    for name, figure in FIGURES.items():
        bottom, top = (figure(values) for values in pooled)
        resampled = np.concatenate([figure(pooled[1][rows]) / figure(pooled[0][rows]) for rows in draws])
        low, high = np.quantile(resampled, (0.025, 0.975)).tolist()
        result[name] = Ratio(float(top / bottom), low, high)
    return result


def _block_draws(sizes: Sequence[int], rng: np.random.Generator) -> list[npt.NDArray[np.int64]]:
    """Indices into the pooled arrays, batches of (resamples, requests): circular blocks within each seed."""
    starts = np.cumsum([0, *sizes[:-1]])
    batches = []
    for _ in range(RESAMPLES // 100):
        parts = []
        for size, start in zip(sizes, starts, strict=True):
            block = min(BLOCK, size)
            first = rng.integers(size, size=(100, -(-size // block)))
            rows = (first[:, :, None] + np.arange(block)).reshape(100, -1)[:, :size] % size
            parts.append(rows + start)
        batches.append(np.concatenate(parts, axis=1))
    return batches
