"""How good the predictions were. Pure."""

from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from sagesched_cli.demo.insight import Predicted
from sagesched_cli.demo.statistics import spearman


class Calibration(msgspec.Struct, frozen=True):
    """Predictions beside the truth."""

    spearman: float
    """Rank correlation of predicted mean and true length."""
    coverage_80: float
    """Share of true lengths between the predicted 10th and 90th percentile; 0.8 when calibrated."""
    pit_deciles: tuple[float, ...]
    """Share of true lengths in each tenth of their predicted distribution; 0.1 each when calibrated."""
    predictions: int


def calibrate(
    predicted: Sequence[Predicted | None], true_tokens: Sequence[int], deciles: Iterable[Sequence[float]]
) -> Calibration:
    """Of the requests whose prediction is known, and of the sidecars' counts of deciles, one sequence a run."""
    pairs = [(one, true) for one, true in zip(predicted, true_tokens, strict=True) if one is not None]
    counts = np.sum([list(run) for run in deciles], axis=0)
    shares = tuple((counts / max(1, counts.sum())).tolist())
    if not pairs:
        return Calibration(0.0, 0.0, shares, 0)
    means = np.array([one.mean_tokens for one, _ in pairs])
    covered = [one.p10_tokens <= true <= one.p90_tokens for one, true in pairs]
    truth = np.array([true for _, true in pairs], dtype=np.float64)
    return Calibration(spearman(means, truth), float(np.mean(covered)), shares, len(pairs))
