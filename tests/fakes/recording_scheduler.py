"""vLLM's own scheduler, which also writes down in which order it admitted requests. Loaded in the engine's process.

`--scheduler-cls recording_scheduler.RecordingScheduler`, with the file's name in RECORDED_ORDER: a line `id priority`
each, as the engine holds them. Nothing is decided here.
"""

import os
from typing import Any

from vllm.v1.core.sched.scheduler import Scheduler


class RecordingScheduler(Scheduler):
    """See the module."""

    def schedule(self, *arguments: Any, **named: Any) -> Any:
        """What the scheduler says; what it admits for the first time is written down."""
        output = super().schedule(*arguments, **named)
        admitted = [self.requests[new.req_id] for new in output.scheduled_new_reqs]
        if admitted:
            with open(os.environ["RECORDED_ORDER"], "a", encoding="utf-8") as file:
                file.writelines(f"{request.request_id} {request.priority}\n" for request in admitted)
        return output
