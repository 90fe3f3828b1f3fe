"""What the demo can be told."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import msgspec

from sagesched.settings import PolicyName
from sagesched_sim.profile import profile_named
from sagesched_sim.workload.arrivals import arrivals_named

LEAST_KV_TOKENS = 8192
"""Room for the longest exchange of the built-in traffic."""
POLICIES: tuple[str, ...] = get_args(PolicyName)


class DemoOptions(msgspec.Struct, frozen=True, kw_only=True):
    """One demo. Times and rates are the engine's own, whatever the speed-up."""

    data: str = "topics"
    load: float = 1.1
    """Arrivals a second over capacity."""
    requests: int = 1200
    history: int = 5000
    """Exchanges of the earlier part that the scheduler may have learnt from, at most."""
    seeds: tuple[int, ...] = (1,)
    policies: tuple[str, ...] = ("fcfs", "sagesched")
    """The first is what the others are compared with."""
    arrivals: str = "bursts:3/0.15/0.85"
    """See arrivals_named."""
    slots: int = 256
    kv_tokens: int = 16_384
    """KV cache of the engine: here what binds, as on a GPU that the weights nearly fill."""
    profile: str = "llama-3.1-8b-rtx4090"
    speedup: float = 9.0
    stream_interval: int = 64
    """Tokens of one stream event."""
    out: Path = Path("build/demo.json")

    def __post_init__(self) -> None:
        for field, least in (("requests", 2), ("history", 1), ("slots", 1), ("stream_interval", 1)):
            if getattr(self, field) < least:
                raise ValueError(f"--{field.replace('_', '-')}: {getattr(self, field)}; it must be at least {least}")
        profile_named(self.profile)
        arrivals_named(self.arrivals)
        if self.kv_tokens < LEAST_KV_TOKENS:
            raise ValueError(f"--kv-tokens: {self.kv_tokens}; it must be at least {LEAST_KV_TOKENS}")
        for field in ("load", "speedup"):
            if getattr(self, field) <= 0:
                raise ValueError(f"--{field}: {getattr(self, field)}; it must be above 0")
        unknown = [policy for policy in self.policies if policy not in POLICIES]
        if unknown or not self.policies or len(set(self.policies)) < len(self.policies):
            raise ValueError(f"--policies: {','.join(self.policies)}; choose different ones of {', '.join(POLICIES)}")
        if not self.seeds or min(self.seeds) < 0 or len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"--seeds: {self.seeds}; give different numbers, none below 0")
        if self.out.suffix != ".json":
            raise ValueError(f"--out: {self.out}; the name must end in .json")

    @property
    def logs(self) -> Path:
        """Where engine and sidecar log to: beside the report, a folder of its own for each."""
        return self.out.with_name(f"{self.out.stem}-logs")


def parse(arguments: Sequence[str]) -> DemoOptions:
    """Options from a command line. Raises ValueError naming the option; exits by itself on unknown ones and --help."""
    given = {name: value for name, value in vars(command_line().parse_args(arguments)).items() if value is not None}
    seed = given.pop("seed", None)
    if seed is not None:
        if "seeds" in given:
            raise ValueError("--seed: give it or --seeds, not both")
        given["seeds"] = (seed,)
    return DemoOptions(**given)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def command_line() -> argparse.ArgumentParser:
    """The parser of `sagesched demo`."""
    default = DemoOptions()
    out = argparse.ArgumentParser(
        prog="sagesched demo",
        description="Starts a simulated engine and the sidecar, drives the same bursty "
        "workload under each policy with the openai client, and compares. Reported seconds are the engine's: "
        "wall seconds times the speed-up.",
    )
    traffic = out.add_argument_group("traffic")
    traffic.add_argument(
        "--data",
        help="topics (synthetic, the default), sharegpt (needs the extra sagesched[sharegpt]), FILE.jsonl with prompt "
        "and output_tokens a line in the order of time, or ShareGPT's own FILE.json",
    )
    traffic.add_argument("--load", type=float, help=f"arrival rate over capacity (default {default.load})")
    traffic.add_argument("--requests", type=int, help=f"measured requests (default {default.requests})")
    traffic.add_argument("--history", type=int, help=f"earlier requests to learn from (default {default.history})")
    traffic.add_argument("--seed", type=int, help="seed of traffic and arrivals (default 1)")
    traffic.add_argument("--seeds", type=_numbers, metavar="N,N,...", help="several seeds, pooled")
    traffic.add_argument(
        "--arrivals",
        help="poisson, gamma:CV (CV: the gaps' coefficient of variation) or bursts:NUMBER/WINDOW/SHARE (the part SHARE "
        f"of the requests comes in the first part WINDOW of each of NUMBER cycles); default {default.arrivals}",
    )
    engine = out.add_argument_group("engine and policies")
    engine.add_argument(
        "--policies", type=_names, metavar="NAME,...", help=f"the first is the reference; of {', '.join(POLICIES)}"
    )
    engine.add_argument("--slots", type=int, help=f"requests that run at once (default {default.slots})")
    engine.add_argument("--kv-tokens", type=int, help=f"KV cache of the engine (default {default.kv_tokens})")
    engine.add_argument("--profile", help=f"step times of the engine (default {default.profile})")
    engine.add_argument("--speedup", type=float, help=f"engine seconds a wall second (default {default.speedup})")
    engine.add_argument(
        "--stream-interval", type=int, help=f"tokens of one stream event (default {default.stream_interval})"
    )
    out.add_argument("--out", type=Path, help=f"report; a .html page is written beside it (default {default.out})")
    return out
