"""Real vLLM for tests: one engine for each set of arguments, which writes down what it admits when."""

from pathlib import Path

from bench.engine.vllm_process import MODEL, VllmProcess, environment_folder

__all__ = ["KV_TOKENS", "MODEL", "PRIORITY", "SLOTS", "STOCK", "Engines", "RealEngine", "environment_folder"]

SLOTS = 4
KV_TOKENS = 2112
STOCK = ("--block-size", "32", "--num-gpu-blocks-override", str(KV_TOKENS // 32))
"""vLLM's own order. 66 blocks are the fewest that a context of 2,048 tokens leaves: a few long answers fill them."""
PRIORITY = ("--scheduling-policy", "priority")
ALWAYS = ("--dtype", "float32", "--max-num-seqs", str(SLOTS))
"""float32, for its greedy text does not depend on what else runs."""
RECORDING = ("--scheduler-cls", "recording_scheduler.RecordingScheduler")


class RealEngine:
    """One running engine."""

    def __init__(self, folder: Path, log: Path, *arguments: str) -> None:
        self._order = log.with_suffix(".order")
        self._order.touch()
        self._process = VllmProcess(
            folder,
            log,
            *(*ALWAYS, *RECORDING, *arguments),
            python_path=Path(__file__).parent,
            environment={"RECORDED_ORDER": str(self._order)},
        )
        self.url = self._process.url
        self.stop = self._process.stop

    def admitted(self) -> list[tuple[str, int]]:
        """(id, priority) of all requests that it ever admitted, in its own order."""
        lines = self._order.read_text(encoding="utf-8").splitlines()
        return [(line.split()[0], int(line.split()[1])) for line in lines]


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
