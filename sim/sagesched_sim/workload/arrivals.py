"""Arrival times in seconds, ascending, from 0. The mean rate is exact: a stated load is the load that is offered."""

import numpy as np

from .quantiles import FloatArray


def poisson(rate_per_s: float, count: int, rng: np.random.Generator) -> FloatArray:
    """Arrivals with exponential gaps (coefficient of variation 1)."""
    return bursty(rate_per_s, count, 1.0, rng)


def bursty(rate_per_s: float, count: int, cv: float, rng: np.random.Generator) -> FloatArray:
    """Arrivals with gamma gaps whose standard deviation is `cv` times their mean: above 1 they come in bursts.

    The gaps are scaled so that the last of `count` arrivals plus one mean gap is at count / rate_per_s.
    """
    if rate_per_s <= 0 or cv <= 0 or count < 1:
        raise ValueError(f"arrivals need rate_per_s > 0, cv > 0 and count >= 1, not {rate_per_s}, {cv}, {count}")
    gaps = rng.gamma(1 / cv**2, size=count - 1)
    times = np.concatenate(([0.0], np.cumsum(gaps)))
    if times[-1] > 0:
        times *= (count - 1) / rate_per_s / times[-1]
    return times
