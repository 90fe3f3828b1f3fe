"""Arrival times in seconds, ascending, from 0. The mean rate is exact: a stated load is the load that is offered."""

from collections.abc import Callable
from functools import partial

import numpy as np

from .quantiles import FloatArray


def poisson(rate_per_s: float, count: int, rng: np.random.Generator) -> FloatArray:
    """Arrivals with exponential gaps (coefficient of variation 1)."""
    return bursty(rate_per_s, count, 1.0, rng)


def bursts(
    rate_per_s: float,
    count: int,
    rng: np.random.Generator,
    *,
    number: int = 3,
    window: float = 0.15,
    share: float = 0.85,
) -> FloatArray:
    """Bursts and quiet in turn: `number` times, `share` of the arrivals come in the first `window` of the cycle.

    Within either part they are Poisson's, given their count. All of it lasts count / rate_per_s.
    """
    if rate_per_s <= 0 or count < 1 or number < 1 or not (0 < window < 1 and 0 <= share <= 1):
        raise ValueError(
            "arrivals need rate_per_s > 0, count >= 1, number >= 1, 0 < window < 1 and 0 <= share <= 1, "
            f"not {rate_per_s}, {count}, {number}, {window}, {share}"
        )
    cycle = rng.integers(number, size=count)
    within = rng.random(count)
    in_burst = rng.random(count) < share
    place = np.where(in_burst, window * within, window + (1 - window) * within)
    times = np.sort((cycle + place) * (count / rate_per_s / number))
    return np.asarray(times - times[0])


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


Arrivals = Callable[[float, int, np.random.Generator], FloatArray]
"""(rate_per_s, count, rng) -> times."""


def arrivals_named(name: str) -> Arrivals:
    """`poisson`, `gamma:CV` or `bursts:NUMBER/WINDOW/SHARE`. Raises ValueError with these when it is none of them."""
    kind, _, figures = name.partition(":")
    try:
        match kind, [float(figure) for figure in figures.split("/") if figure]:
            case "poisson", []:
                return poisson
            case "gamma", [cv]:
                return lambda rate_per_s, count, rng: bursty(rate_per_s, count, cv, rng)
            case "bursts", [number, window, share]:
                return partial(bursts, number=int(number), window=window, share=share)
    except ValueError:
        pass
    raise ValueError(f"arrivals: {name!r} is unknown; choose poisson, gamma:CV or bursts:NUMBER/WINDOW/SHARE")
