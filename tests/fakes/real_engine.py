"""A real vLLM: started once for each set of arguments, asked over HTTP, ended with the tests."""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[2]
START_LIMIT_S = 240.0
STOP_LIMIT_S = 20.0
MODEL = "smollm2"
SLOTS = 4
COMMON = ["--max-model-len", "2048", "--enforce-eager", "--dtype", "float32", "--max-num-seqs", str(SLOTS)]
"""float32, for its greedy text does not depend on what else runs; eager, for compiling takes a minute."""
KV_TOKENS = 2112
STOCK = ("--block-size", "32", "--num-gpu-blocks-override", str(KV_TOKENS // 32))
"""vLLM's own order. 66 blocks are the fewest that a context of 2,048 tokens leaves: a few long answers fill them."""
PRIORITY = ("--scheduling-policy", "priority")
RECORDING = ["--scheduler-cls", "recording_scheduler.RecordingScheduler"]


def find() -> Path | str:
    """The environment's folder, or why there is none."""
    command = [sys.executable, str(ROOT / "scripts" / "engine_environment.py"), "where"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout.strip()
    if done.returncode not in (0, 3):
        raise RuntimeError(done.stderr)
    return Path(said) if done.returncode == 0 else "a real engine needs " + "; ".join(said.splitlines())


class RealEngine:
    """`vllm serve` with these arguments on a free port; ready when the constructor returns."""

    def __init__(self, folder: Path, log: Path, *arguments: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.log = log
        command = [str(folder / "env" / "bin" / "vllm"), "serve", str(folder / "model"), "--served-model-name", MODEL]
        command += ["--host", "127.0.0.1", "--port", str(self.port), *COMMON, *RECORDING, *arguments]
        self._order = log.with_suffix(".order")
        self._order.touch()
        kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        fakes = {"PYTHONPATH": str(Path(__file__).parent), "RECORDED_ORDER": str(self._order)}
        own = fakes | {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
        with log.open("wb") as output:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=kept | own,
                start_new_session=True,  # its workers end with it: they are one group
                preexec_fn=end_with_parent,
            )
        try:
            self._wait()
        except BaseException:
            self.stop()
            raise

    def _wait(self) -> None:
        deadline_s = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline_s:
            if self._child.poll() is not None:
                break
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=5):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
        end = "\n".join(self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-25:])
        raise RuntimeError(f"vLLM did not start; the end of {self.log}:\n{end}")

    def admitted(self) -> list[tuple[str, int]]:
        """(id, priority) of all requests that it ever admitted, in its own order."""
        lines = self._order.read_text(encoding="utf-8").splitlines()
        return [(line.split()[0], int(line.split()[1])) for line in lines]

    def stop(self) -> None:
        """End it and its workers."""
        with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(self._child.pid, signal.SIGTERM)
            self._child.wait(STOP_LIMIT_S)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._child.pid, signal.SIGKILL)
        self._child.wait()


def end_with_parent() -> None:
    """Linux ends the engine when the tests are killed and can end nothing themselves."""
    set_parent_death_signal = 1
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Engines:
    """The engines of one test session, by their arguments."""

    def __init__(self, folder: Path, logs: Path) -> None:
        self._folder, self._logs = folder, logs
        self._running: dict[tuple[str, ...], RealEngine] = {}

    def start(self, *arguments: str) -> RealEngine:
        """One with these arguments: that which runs already, or a new one (half a minute)."""
        if arguments not in self._running:
            log = self._logs / f"vllm-{len(self._running)}.log"
            self._running[arguments] = RealEngine(self._folder, log, *arguments)
        return self._running[arguments]

    def stop(self) -> None:
        """End them all."""
        for engine in self._running.values():
            engine.stop()
