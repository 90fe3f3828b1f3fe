"""The resource-bound cost of a request (docs/method.md section 2): compute and KV memory in one number."""

from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from sagesched.lengths import FloatArray

Tokens = TypeVar("Tokens", float, FloatArray)


@dataclass(frozen=True, slots=True)
class Cost:
    """`C(O) = alpha * I_uncached + I * O + O^2 / 2` for one prompt, in token^2 (KV tokens held, summed over steps).

    alpha prices the prefill of one uncached prompt token; 0 is the paper's cost.
    """

    prompt_tokens: float
    prefill: float = 0.0

    @classmethod
    def of(cls, prompt_tokens: float, *, alpha: float = 0.0, uncached_tokens: float | None = None) -> "Cost":
        """The cost for `prompt_tokens` (`I`); `uncached_tokens` is `I` where the host does not know it."""
        uncached = prompt_tokens if uncached_tokens is None else uncached_tokens
        return cls(prompt_tokens, alpha * uncached)

    def total(self, output_tokens: Tokens) -> Tokens:
        """Cost of a whole request of `output_tokens` (a number or an array)."""
        return self.prefill + self.prompt_tokens * output_tokens + output_tokens * output_tokens / 2

    def mean(self, moments: tuple[float, float]) -> float:
        """E[total(O)], of an output length's mean and mean square."""
        first, second = moments
        return self.prefill + self.prompt_tokens * first + second / 2

    def attained(self, generated_tokens: float) -> float:
        """Cost already paid after `generated_tokens`: 0 before the first token, which pays for the prefill."""
        return self.total(generated_tokens) if generated_tokens > 0 else 0.0

    def tokens_for(self, cost: float) -> float:
        """The inverse of `total`: the output tokens at which a request has cost that much; 0 below the prefill."""
        left = cost - self.prefill
        if left <= 0:
            return 0.0
        return float(2 * left / (self.prompt_tokens + np.sqrt(self.prompt_tokens**2 + 2 * left)))
