"""The door to vLLM: its scheduler with our queue in it, for both of the engine's ways to run.

Nothing of the engine's own `schedule` is copied: it runs between a look before and a look after (conductor.py).
"""

import logging
import time
from importlib.metadata import version
from typing import Any

from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.request_queue import RequestQueue, SchedulingPolicy
from vllm.v1.core.sched.scheduler import Scheduler

from sagesched_vllm.conductor import Conductor
from sagesched_vllm.log import LOGGER
from sagesched_vllm.memory import EngineMemory
from sagesched_vllm.queue import RankedQueue, Skipped
from sagesched_vllm.settings_file import Watch, pod_name, settings_path
from sagesched_vllm.versions import check_version

_log = logging.getLogger(LOGGER)

RequestQueue.register(RankedQueue)


class _Ordered:
    """Mixed into a scheduler of vLLM's, before it."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        engine: Any = self
        engine.policy = SchedulingPolicy.FCFS  # under it the engine evicts whoever is last in `running`
        watch = Watch(settings_path(engine.vllm_config.additional_config), pod_name())
        memory = EngineMemory(engine)
        self.sagesched = Conductor(
            engine, watch, memory.capacity(), memory.used_tokens, memory, step_tokens=1 + engine.num_spec_tokens
        )
        engine.waiting = self.sagesched.queue
        if hasattr(engine, "skipped_waiting"):  # vLLM up to 0.30
            engine.skipped_waiting = Skipped(self.sagesched.queue)

    def schedule(self, *arguments: Any, **named: Any) -> Any:
        """The engine's own step, in our order."""
        self.sagesched.before()
        output = None
        try:
            output = super().schedule(*arguments, **named)  # type: ignore[misc]
        finally:
            if output is None:
                self.sagesched.after(0, 0)
            else:
                self.sagesched.after(output.total_num_scheduled_tokens, len(output.num_scheduled_tokens))
        return output

    def preempt_for_order(self, request: Any) -> bool:
        """As the engine itself does it when memory runs out, before its step and not within."""
        engine: Any = self
        can_free = getattr(engine, "_request_blocks_can_be_freed", None)
        if can_free is not None and not can_free(request):
            return False
        engine.running.remove(request)
        engine.prev_step_scheduled_req_ids.discard(request.request_id)
        engine._preempt_request(request, time.monotonic())
        return True

    def make_stats(self, *arguments: Any, **named: Any) -> Any:
        """The engine's own numbers, with ours in them."""
        stats = super().make_stats(*arguments, **named)  # type: ignore[misc]
        if stats is not None:
            self.sagesched.tell(stats.waiting_lora_adapters)
        return stats


class SageSyncScheduler(_Ordered, Scheduler):
    """For an engine that waits for each step's tokens before the next one."""


class SageAsyncScheduler(_Ordered, AsyncScheduler):
    """For an engine that prepares a step while the one before it runs."""


def SageScheduler(vllm_config: Any, *arguments: Any, **named: Any) -> Any:  # noqa: N802 - it stands where a class does
    """The scheduler for this engine's mode. Raises UnsupportedVersion, or SettingsError where the file is wrong."""
    warning = check_version(version("vllm"))
    if warning:
        _log.warning("SageSched: %s", warning)
    is_async = vllm_config.scheduler_config.async_scheduling
    return (SageAsyncScheduler if is_async else SageSyncScheduler)(vllm_config, *arguments, **named)
