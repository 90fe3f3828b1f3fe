"""What the engine is seen to do, counted for /metrics. Times are wall seconds: what a client of this engine waits."""

from bisect import bisect_left
from collections.abc import Sequence

from sagesched_sim.engine import Finished, StepResult
from sagesched_sim.session import Sent

LATENCY_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
FIRST_TOKEN_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
TOKEN_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0),
)
STEP_TOKENS = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)


def one_two_five(up_to: int) -> tuple[int, ...]:
    """1, 2, 5, 10, 20, 50 ... as far as `up_to`."""
    bounds: list[int] = []
    scale = 1
    while True:
        for step in (1, 2, 5):
            if step * scale > up_to:
                return tuple(bounds)
            bounds.append(step * scale)
        scale *= 10


class Tally:
    """A histogram: counts per bucket and a sum. Weighted, so that a step's equal observations cost one call."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(float(bound) for bound in bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def add(self, value: float, weight: int = 1) -> None:
        """Counts `value` `weight` times."""
        self.counts[bisect_left(self.bounds, value)] += weight
        self.total += value * weight

    def cumulative(self) -> list[tuple[str, float]]:
        """(`le`, count up to there), the last being `+Inf`."""
        rows = []
        running = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            running += count
            rows.append((bound, float(running)))
        return rows


class Observations:
    """Counters and histograms under vLLM's names, without the prefix."""

    def __init__(self, max_model_len: int) -> None:
        tokens = one_two_five(max_model_len)
        self.preemptions = 0
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.success: dict[str, int] = dict.fromkeys(("stop", "length", "abort", "error", "repetition"), 0)
        self.histograms: dict[str, Tally] = {
            "request_prompt_tokens": Tally(tokens),
            "request_generation_tokens": Tally(tokens),
            "iteration_tokens_total": Tally(STEP_TOKENS),
            "request_max_num_generation_tokens": Tally(tokens),
            "request_params_n": Tally((1, 2, 5, 10, 20)),
            "request_params_max_tokens": Tally(tokens),
            "time_to_first_token_seconds": Tally(FIRST_TOKEN_S),
            "inter_token_latency_seconds": Tally(TOKEN_S),
            "request_time_per_output_token_seconds": Tally(TOKEN_S),
            "e2e_request_latency_seconds": Tally(LATENCY_S),
            "request_queue_time_seconds": Tally(LATENCY_S),
            "request_inference_time_seconds": Tally(LATENCY_S),
            "request_prefill_time_seconds": Tally(LATENCY_S),
            "request_decode_time_seconds": Tally(LATENCY_S),
            "request_num_preemptions": Tally((1, 2, 3, 4, 5, 10, 20)),
            "request_prefill_kv_computed_tokens": Tally(tokens),
        }

    def step(self, result: StepResult, *, decoded: int, wall_s: float) -> None:
        """A step ended; `decoded` of its tokens were not the first of their sequence."""
        self.preemptions += len(result.preempted)
        self.generation_tokens += len(result.emitted)
        self.histograms["iteration_tokens_total"].add(result.prefill_tokens + result.decode_sequences)
        if decoded > 0:
            self.histograms["inter_token_latency_seconds"].add(wall_s, decoded)

    def first_token(self, sent: Sent, now_s: float) -> None:
        """A sequence got its first token: its prompt has been processed."""
        self.prompt_tokens += sent.prompt_tokens
        self.histograms["time_to_first_token_seconds"].add(now_s - sent.session.arrival_s)

    def finished(self, sent: Sent, finished: Finished, now_s: float) -> None:
        """A sequence ended by itself or at its cap."""
        self.success[finished.reason] += 1
        arrival_s = sent.session.arrival_s
        scheduled_s = sent.scheduled_s if sent.scheduled_s is not None else arrival_s
        first_s = sent.first_token_s if sent.first_token_s is not None else now_s
        observe = self.histograms
        observe["e2e_request_latency_seconds"].add(now_s - arrival_s)
        observe["request_queue_time_seconds"].add(max(0.0, scheduled_s - arrival_s))
        observe["request_inference_time_seconds"].add(now_s - scheduled_s)
        observe["request_prefill_time_seconds"].add(first_s - scheduled_s)
        observe["request_decode_time_seconds"].add(now_s - first_s)
        observe["request_prompt_tokens"].add(sent.prompt_tokens)
        observe["request_prefill_kv_computed_tokens"].add(sent.prompt_tokens)
        observe["request_generation_tokens"].add(finished.output_tokens)
        observe["request_max_num_generation_tokens"].add(finished.output_tokens)
        observe["request_params_max_tokens"].add(sent.session.max_tokens)
        observe["request_params_n"].add(sent.session.choices)
        observe["request_num_preemptions"].add(finished.preemptions)
        if finished.output_tokens > 1:
            per_token_s = (now_s - first_s) / (finished.output_tokens - 1)
            observe["request_time_per_output_token_seconds"].add(per_token_s)
