"""Processes that a benchmark starts, and what they cost, read from /proc (Linux alone)."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

_TICKS = os.sysconf("SC_CLK_TCK")
_STOP_SECONDS = 10.0


def end_with_parent() -> None:
    """For a child before it begins: Linux ends it when its starter is killed and can end nothing itself."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


class Process:
    """A child that says on its first line, in JSON, its `url`."""

    def __init__(self, child: "subprocess.Popen[str]", ready: dict[str, Any]) -> None:
        self._child = child
        self.url: str = ready["url"]
        at = urlsplit(self.url)
        self.address = (at.hostname or "", at.port or 80)

    def cpu_s(self) -> float:
        """User and system time since it started, in seconds, to a hundredth."""
        fields = Path(f"/proc/{self._child.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def memory_mib(self, field: str = "VmRSS") -> float:
        """Resident memory now, or its highest (`VmHWM`)."""
        for line in Path(f"/proc/{self._child.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith(field + ":"):
                return int(line.split()[1]) / 1024
        raise ValueError(f"/proc/{self._child.pid}/status has no {field}")


@contextmanager
def started(module: str, *arguments: str, environment: dict[str, str] | None = None) -> Iterator[Process]:
    """`python -m module arguments`, ready to answer; ended on leaving."""
    command = [sys.executable, "-m", module, *arguments]
    env = os.environ | (environment or {})
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env, preexec_fn=end_with_parent)
    try:
        assert child.stdout is not None
        line = child.stdout.readline()
        if not line:
            raise RuntimeError(f"{module}: ended with {child.wait()} before it listened")
        yield Process(child, json.loads(line))
    finally:
        child.terminate()
        try:
            child.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


@contextmanager
def sidecar(upstream: Process, *arguments: str) -> Iterator[Process]:
    """A sidecar before this upstream, once it has seen that the engine is there and has rested."""
    quiet = ["--log-level", "warning"]
    with started("sagesched_sidecar", "--upstream", upstream.url, "--port", "0", *quiet, *arguments) as process:
        settle(process)
        yield process


def settle(process: Process) -> None:
    """Wait until its start-up is over: no processor time for a second."""
    spent, since = process.cpu_s(), time.monotonic()
    while time.monotonic() - since < 1.0:
        time.sleep(0.1)
        now = process.cpu_s()
        if now - spent > 2 / _TICKS:
            spent, since = now, time.monotonic()


def run_json(command: Sequence[str], given: Any, *, limit_s: float, environment: dict[str, str]) -> Any:
    """What a program writes as JSON after reading `given` as JSON. Raises RuntimeError with its last words."""
    done = subprocess.run(
        command, input=json.dumps(given), capture_output=True, text=True, timeout=limit_s, env=os.environ | environment
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[:3])}: {(done.stderr.strip() or 'no message').splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])
