"""The engine and, where a policy has one, the sidecar before it: fresh ones for each run."""

import json
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench import processes
from bench.engine import lengths_file
from bench.engine.policies import ENGINE, SLOTS, Policy
from bench.engine.vllm_process import MODEL, ROOT, VllmProcess

REPLAY = ("--logits-processors", "bench.engine.replay:Replay")
Lengths = Iterable[tuple[Sequence[int], int]]


@contextmanager
def engine(folder: Path, log: Path, policy: Policy, lengths: Lengths | None) -> Iterator[str]:
    """vLLM's URL. With `lengths` it replays these (token ids, output tokens); their file is gone after it."""
    arguments = [*ENGINE, *policy.engine]
    with TemporaryDirectory(prefix="lengths-") as own:
        environment = {}
        if lengths is not None:
            arguments += REPLAY
            environment = lengths_file.write(Path(own) / "lengths.json", secrets.token_hex(16), lengths)
        process = VllmProcess(folder, log, *arguments, python_path=ROOT, environment=environment)
        try:
            process.keep_apart()
            yield process.url
        finally:
            process.stop()


def write_history(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    """The sidecar's seed file: prompt, output_tokens, and what else is known of an earlier request."""
    path.write_text("".join(json.dumps(row | {"model": MODEL}) + "\n" for row in rows), encoding="utf-8")
    return path


def sidecar_settings(policy: Policy, history: Path, requests: int, more: dict[str, Any]) -> dict[str, Any]:
    """Only what a run needs to be fair, and what `more` says, section by section."""
    settings: dict[str, Any] = {
        "engine": {"slots": SLOTS},
        "history": {"seedFile": str(history), "learn": False},
        "queue": {"maxRequests": requests + 1, "maxAgeSeconds": 3600},
    }
    if policy.mode not in (None, "gate"):
        settings["engine"] |= {"mode": policy.mode, "arguments": list(policy.engine)}
    for section, fields in more.items():
        settings[section] = settings.get(section, {}) | fields
    return settings


@contextmanager
def sidecar(upstream: str, settings: dict[str, Any], file: Path, module: str = "sagesched_sidecar") -> Iterator[str]:
    """Its URL, once the history is learnt. `file`: where its settings are written."""
    file.write_text(json.dumps(settings), encoding="utf-8")
    arguments = ("--upstream", upstream, "--settings", str(file), "--port", "0", "--log-level", "warning")
    with processes.started(module, *arguments, environment={"OPENBLAS_NUM_THREADS": "1"}) as process:
        yield process.url
