"""Where the figures come from: processor, versions, and how busy the machine was."""

import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np


def machine() -> dict[str, Any]:
    """The facts that a figure cannot be read without."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("numpy", "aiohttp", "uvloop", "msgspec")},
    }


def load() -> list[float]:
    """The load averages over 1, 5 and 15 minutes."""
    return [round(value, 2) for value in os.getloadavg()]


def speed() -> dict[str, float]:
    """How fast this machine is just now: figures of a busy or a shared one are compared by these two.

    A fixed loop in Python, and reading 8 MB of memory; the best of many tries, in milliseconds.
    """
    block = np.ones(2_000_000, dtype=np.float32)
    return {
        "python_ms": round(1e3 * min(_timed(lambda: sum(range(100_000))) for _ in range(20)), 3),
        "memory_ms": round(1e3 * min(_timed(lambda: block @ block) for _ in range(20)), 3),
    }


def _timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
