"""Which core does what, so that what else runs on a machine disturbs the measured engine little (Linux alone)."""

import contextlib
import os
from pathlib import Path

ENGINE_CORE = "VLLM::"
"""vLLM names its model's and its scheduler's process so; both spin while they wait, and never work at once."""


def keep_apart(leader: int) -> None:
    """The model and the scheduler of the engine whose process group is `leader` get the first core, its HTTP server and
    this process (with what it starts from now on) the others. Nothing changes where there is one core alone."""
    first, *others = sorted(os.sched_getaffinity(0) | os.sched_getaffinity(leader))
    if not others:
        return
    os.sched_setaffinity(0, others)
    for process in _group(leader):
        cores = [first] if _name(process).startswith(ENGINE_CORE) else others
        for thread in Path(f"/proc/{process}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), cores)


def _group(leader: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if entry.name.isdigit() and os.getpgid(int(entry.name)) == leader:
                found.append(int(entry.name))
    return found


def _name(process: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_text(encoding="utf-8", errors="replace")
    return ""
