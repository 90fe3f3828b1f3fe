"""Step-time profiles: how long one engine step takes on a given model and GPU.

`t_ms = c0 + c1*N + c2*max(0, N - N0) + cP*P + cK*K`, where N is the number of tokens computed in the step (prefill
chunks plus one per decoding sequence), P the sum over prefill chunks of `chunk * (past + chunk/2)` and K the sum of
the contexts of the decoding sequences.

The coefficients are fits to published measurements: RTX 4090 from LLMServingSim's profile of vLLM 0.19 (MIT), A40 from
Vidur's profiles (MIT), rescaled to Llama-3.1-8B and about 10 % uncertain, H100 from aiconfigurator's kernel tables
(Apache-2.0). Against measured runs they are within 3-9 %. KV capacities are those of the runs, where they were given;
the others are what fits in the GPU's memory after the weights at 131,072 bytes a token (Llama-3.1-8B).
"""

import msgspec


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """Step-time coefficients of one model on one GPU (or tensor-parallel group)."""

    name: str
    base_ms: float
    """c0: what an empty step costs."""
    token_ms: float
    """c1: per token computed."""
    extra_token_ms: float
    """c2: per token beyond `knee_tokens`, where the step becomes bound by arithmetic."""
    knee_tokens: int
    """N0."""
    prefill_pair_ms: float
    """cP: per pair of tokens in prefill attention."""
    context_token_ms: float
    """cK: per token of context that decoding sequences read."""
    kv_tokens: int
    """KV cache capacity in tokens."""

    def step_s(self, tokens: int, prefill_pairs: float, context_tokens: int) -> float:
        """Seconds of a step over N = `tokens`, P = `prefill_pairs`, K = `context_tokens`; 0 for a step without work."""
        if tokens <= 0:
            return 0.0
        t_ms = self.base_ms + self.token_ms * tokens
        t_ms += self.prefill_pair_ms * prefill_pairs + self.context_token_ms * context_tokens
        if tokens > self.knee_tokens:
            t_ms += self.extra_token_ms * (tokens - self.knee_tokens)
        return t_ms / 1000.0


def _profile(name: str, c0: float, c1: float, c2: float, n0: int, cp: float, ck: float, kv_tokens: int) -> Profile:
    return Profile(
        name=name,
        base_ms=c0,
        token_ms=c1,
        extra_token_ms=c2,
        knee_tokens=n0,
        prefill_pair_ms=cp,
        context_token_ms=ck,
        kv_tokens=kv_tokens,
    )


PROFILES: dict[str, Profile] = {
    p.name: p
    for p in (
        _profile("llama-3.1-8b-a40", 28.10, 0.0786, 0.0506, 190, 4.79e-6, 2.05e-4, 195_000),
        _profile("llama-3.1-8b-rtx4090", 16.84, 0.0370, 0.0526, 210, 4.34e-6, 1.415e-4, 41_408),
        # No run gave this capacity: 80 GB at 90 %, less 16 GB of weights and 2 GB of activations.
        _profile("llama-3.1-8b-h100", 6.56, 0.0104, 0.0095, 480, 7.5e-7, 4.05e-5, 412_000),
        _profile("qwen3-32b-h100-tp1", 25.15, 0.0340, 0.0515, 380, 3.09e-6, 8.12e-5, 34_000),
        _profile("qwen3-32b-h100-tp2", 14.14, 0.0276, 0.0215, 470, 1.51e-6, 3.96e-5, 317_000),
        # No run gave this capacity: twice the GPUs of tp2 and the same weights, at 262,144 bytes a token.
        _profile("qwen3-32b-h100-tp4", 8.54, 0.0218, 0.0062, 440, 7.5e-7, 2.05e-5, 850_000),
    )
}


def profile_named(name: str) -> Profile:
    """The profile called `name`. Raises ValueError naming the known ones."""
    try:
        return PROFILES[name]
    except KeyError:
        raise ValueError(f"profile: {name!r} is unknown; choose one of {', '.join(PROFILES)}") from None
