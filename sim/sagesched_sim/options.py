"""The server's options: one struct, one parser."""

import argparse
from pathlib import Path

import msgspec

from sagesched_sim.engine import EngineLimits
from sagesched_sim.profile import PROFILES, profile_named
from sagesched_sim.waiting import SchedulingPolicy

FAULT_KINDS = ("error500", "disconnect", "stall")


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the server can be told."""

    host: str = "127.0.0.1"
    port: int = 0
    model: str = "sagesched-sim"
    profile: str = "llama-3.1-8b-rtx4090"
    speedup: float = 1.0
    seed: int = 0
    stream_interval: int = 1
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    block_size: int = 16
    kv_tokens: int | None = None
    """None: the profile's capacity."""
    max_model_len: int = 8192
    """Cut to the KV capacity where that is smaller."""
    scheduling_policy: SchedulingPolicy = "fcfs"
    lengths: Path | None = None
    """None: drawn by topic."""
    median_tokens: float = 200.0
    api_key: str | None = None
    drain_s: float = 30.0
    fault_rate: float = 0.0
    fault_kinds: tuple[str, ...] = FAULT_KINDS
    stall_s: float = 5.0

    def __post_init__(self) -> None:
        for field in ("speedup", "stream_interval", "drain_s", "stall_s", "median_tokens"):
            if getattr(self, field) <= 0:
                raise ValueError(f"{field}: {getattr(self, field)}; it must be above 0")
        if not 0 <= self.fault_rate <= 1:
            raise ValueError(f"fault_rate: {self.fault_rate}; it is a share from 0 to 1")
        if unknown := set(self.fault_kinds) - set(FAULT_KINDS):
            raise ValueError(f"fault_kinds: {', '.join(sorted(unknown))}; choose from {', '.join(FAULT_KINDS)}")

    def limits(self) -> EngineLimits:
        """The engine's bounds. Raises ValueError naming the one at fault."""
        kv_tokens = profile_named(self.profile).kv_tokens if self.kv_tokens is None else self.kv_tokens
        num_blocks = kv_tokens // self.block_size if self.block_size > 0 else 0
        return EngineLimits(
            max_num_seqs=self.max_num_seqs,
            max_num_batched_tokens=self.max_num_batched_tokens,
            block_size=self.block_size,
            num_blocks=num_blocks,
            max_model_len=min(self.max_model_len, num_blocks * self.block_size),
            policy=self.scheduling_policy,
        )


def parser() -> argparse.ArgumentParser:
    """The command line of `python -m sagesched_sim`."""
    default = Options()
    out = argparse.ArgumentParser(
        prog="python -m sagesched_sim",
        description="An OpenAI-compatible engine without a GPU: vLLM's scheduling and shapes, a profile's step times, "
        "filler words for answers. Prints one JSON line with its address when it is ready.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    out.add_argument("--host", default=default.host, help="address to listen on")
    out.add_argument("--port", type=int, default=default.port, help="port to listen on; 0 takes a free one")
    out.add_argument("--model", default=default.model, help="the served model's name")
    _engine_arguments(out, default)
    _answer_arguments(out, default)
    _fault_arguments(out, default)
    return out


def _engine_arguments(out: argparse.ArgumentParser, default: Options) -> None:
    group = out.add_argument_group("engine")
    group.add_argument("--profile", choices=sorted(PROFILES), default=default.profile, help="step times")
    group.add_argument("--speedup", type=float, default=default.speedup, help="how many times faster than the profile")
    group.add_argument("--max-num-seqs", type=int, default=default.max_num_seqs, help="sequences that run at once")
    group.add_argument(
        "--max-num-batched-tokens", type=int, default=default.max_num_batched_tokens, help="token budget of a step"
    )
    group.add_argument("--block-size", type=int, default=default.block_size, help="tokens of a KV block")
    group.add_argument(
        "--kv-tokens", type=int, default=None, help="KV capacity in tokens; the profile's when not given"
    )
    group.add_argument(
        "--max-model-len", type=int, default=default.max_model_len, help="prompt and output together, in tokens"
    )
    group.add_argument(
        "--scheduling-policy",
        choices=("fcfs", "priority"),
        default=default.scheduling_policy,
        help="order of the waiting queue; priority: lower X-Vllm-Priority, or `priority` in the body, first",
    )


def _answer_arguments(out: argparse.ArgumentParser, default: Options) -> None:
    group = out.add_argument_group("answers")
    group.add_argument("--seed", type=int, default=default.seed, help="of words, lengths and faults")
    group.add_argument(
        "--stream-interval", type=int, default=default.stream_interval, help="tokens of one stream event"
    )
    group.add_argument(
        "--lengths",
        default="topic",
        metavar="FILE|topic",
        help='true output lengths: JSONL of {"key": SHA-256 of the prompt\'s text, "output_tokens": N}; '
        "or drawn by the prompt's words",
    )
    group.add_argument(
        "--median-tokens", type=float, default=default.median_tokens, help="of the lengths drawn by topic"
    )
    group.add_argument(
        "--api-key-env", metavar="VAR", default=None, help="environment variable with the API key to ask for"
    )
    group.add_argument(
        "--drain-s", type=float, default=default.drain_s, help="after SIGTERM, seconds for what is under way"
    )


def _fault_arguments(out: argparse.ArgumentParser, default: Options) -> None:
    group = out.add_argument_group("faults, for tests")
    group.add_argument("--fault-rate", type=float, default=default.fault_rate, help="share of requests that go wrong")
    group.add_argument("--fault-kinds", default=",".join(FAULT_KINDS), help="which faults, separated by commas")
    group.add_argument("--stall-s", type=float, default=default.stall_s, help="how long a stalled stream is silent")
