"""May this request start now? The predicted peak of KV cache use (Past-Future, arXiv 2507.10150)."""

from collections.abc import Sequence

import numpy as np


def predicted_peak_tokens(held_tokens: Sequence[float], remaining_tokens: Sequence[float]) -> float:
    """The largest KV use ahead, in tokens, if every request ends when predicted and all grow at one pace.

    `held_tokens[i]`: prompt plus generated so far; `remaining_tokens[i]`: still to come. Sorted by what remains,
    descending, request i ends when i are still there, so the peak is `max_i(remaining_i * i + sum_{j<=i} held_j)`.
    """
    if not held_tokens:
        return 0.0
    held = np.asarray(held_tokens, dtype=np.float64)
    remaining = np.asarray(remaining_tokens, dtype=np.float64)
    order = np.argsort(-remaining, kind="stable")
    alive = np.arange(1, held.size + 1)
    return float((remaining[order] * alive + np.cumsum(held[order])).max())
