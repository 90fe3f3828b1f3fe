"""A vLLM on this machine's CPU: started, waited for, ended with whoever started it."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from bench.engine.cores import keep_apart
from bench.processes import end_with_parent

ROOT = Path(__file__).parents[2]
START_LIMIT_S = 300.0
STOP_LIMIT_S = 20.0
MODEL = "smollm2"
COMMON = ("--max-model-len", "2048", "--enforce-eager")
"""Eager, for compiling takes a minute."""
OWN_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}


class EngineError(Exception):
    """The engine did not start, or cannot on this machine."""


def environment_folder() -> Path | str:
    """The folder that `make test-engine` makes, or why there is none."""
    command = [sys.executable, str(ROOT / "scripts" / "engine_environment.py"), "where"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout.strip()
    if done.returncode not in (0, 3):
        raise EngineError(done.stderr)
    return Path(said) if done.returncode == 0 else "a real engine needs " + "; ".join(said.splitlines())


class VllmProcess:
    """`vllm serve` with these arguments on a free port; ready when the constructor returns.

    `python_path`: where the engine's process may import from beside its own packages.
    """

    def __init__(
        self, folder: Path, log: Path, *arguments: str, python_path: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        port = free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._log = log
        command = [str(folder / "env" / "bin" / "vllm"), "serve", str(folder / "model"), "--served-model-name", MODEL]
        command += ["--host", "127.0.0.1", "--port", str(port), *COMMON, *arguments]
        own = OWN_ENVIRONMENT | {"PYTHONPATH": str(python_path)}
        with log.open("wb") as output:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | own | dict(environment or {}),
                start_new_session=True,  # its workers end with it: they are one group
                preexec_fn=end_with_parent,
            )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def keep_apart(self) -> None:
        """A core for its model and scheduler, the others for the rest (cores.py)."""
        keep_apart(self._child.pid)

    def _wait(self) -> None:
        deadline_s = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline_s and self._child.poll() is None:
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
        end = "\n".join(self._log.read_text(encoding="utf-8", errors="replace").splitlines()[-25:])
        raise EngineError(f"vLLM did not start; the end of {self._log}:\n{end}")

    def stop(self) -> None:
        """End it and its workers."""
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(self._child.pid, signal.SIGTERM)
            self._child.wait(STOP_LIMIT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
