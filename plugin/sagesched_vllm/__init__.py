"""The scheduler that goes inside vLLM: `--scheduler-cls sagesched_vllm.SageScheduler` (docs/plugin.md)."""

from typing import Any


def __getattr__(name: str) -> Any:
    if name == "SageScheduler":  # loads vLLM's own scheduler, which not everything here needs
        from sagesched_vllm.scheduler import SageScheduler

        return SageScheduler
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
