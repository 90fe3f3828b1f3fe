"""One run: a fresh engine and a fresh sidecar, one policy, one list of arrivals."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec
import numpy as np

from sagesched_cli.demo.children import child, tail
from sagesched_cli.demo.client import Refused, Served, Shot, drive
from sagesched_cli.demo.errors import DemoError
from sagesched_cli.demo.insight import Counters, Explained, Predicted, Watcher, counters
from sagesched_cli.demo.options import DemoOptions
from sagesched_cli.demo.statistics import FloatArray
from sagesched_sim.lengths import prompt_key
from sagesched_sim.workload.traffic import Traffic

MODEL = "sagesched-sim"
WAIT_BOUND_S = 300.0
"""The sidecar's default starvation bound, here in engine seconds."""
QUEUE_AGE_BOUND_S = 3600.0
"""In wall seconds: nothing expires while everything is submitted at once."""
CANDIDATES = 20
"""Requests of the later half that are looked at while they wait; the first that had others before it is explained."""


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """What one run gave, in engine seconds, one entry a request in order of arrival; NaN where it was refused."""

    policy: str
    request_ids: tuple[str, ...]
    arrival_s: FloatArray
    ttft_s: FloatArray
    ttlt_s: FloatArray
    late_s: FloatArray
    """How much later than it should a request was sent: the client's own delay."""
    predicted: tuple[Predicted | None, ...]
    counted: Counters
    explained: Explained | None

    refusals: dict[str, int]
    """Requests that the sidecar turned away, by its reason."""


class Laboratory:
    """The files that the runs of one seed share, and how a run is made."""

    def __init__(
        self,
        options: DemoOptions,
        traffic: Traffic,
        *,
        seed: int,
        files: Path,
        logs: Path,
        answered: Callable[[], object],
    ) -> None:
        """`files`: a folder where prompts may lie meanwhile; `answered` is called at the end of each request."""
        self._answered = answered
        self._options = options
        self._exchanges = traffic.measured
        self._seed = seed
        self._files, self._logs = files, logs
        self._lengths, self._history = files / f"lengths-{seed}.jsonl", files / f"history-{seed}.jsonl"
        _write_lines(
            self._lengths, ({"key": prompt_key(e.prompt), "output_tokens": e.output_tokens} for e in traffic.measured)
        )
        _write_lines(
            self._history,
            ({"prompt": e.prompt, "output_tokens": e.output_tokens, "model": MODEL} for e in traffic.history),
        )

    async def run(self, policy: str, arrivals_s: FloatArray) -> Run:
        """Serves the measured requests at those engine times. Raises DemoError with the logs' ends on failure."""
        speedup, name = self._options.speedup, f"{policy}-{self._seed}"
        shots = [
            Shot(exchange, f"{name}-{number}", arrival_s / speedup)
            for number, (exchange, arrival_s) in enumerate(zip(self._exchanges, arrivals_s.tolist(), strict=True))
        ]
        half = len(shots) // 2
        candidates = [shot.request_id for shot in shots[half :: max(1, half // CANDIDATES)]]
        logs = [self._logs / f"{name}-{part}.log" for part in ("engine", "sidecar")]
        try:
            async with self._servers(policy, logs) as url, aiohttp.ClientSession() as session:
                watcher = Watcher(url, session, candidates, self._answered)
                try:
                    served = await drive(url, MODEL, shots, watcher)
                    await watcher.settle()
                finally:
                    watcher.stop()
                counted = await counters(url, session)
        except DemoError as error:
            ends = "\n".join(f"--- the end of {log}\n{tail(log)}" for log in logs)
            raise DemoError(f"{name}: {error}\n{ends}") from error
        first_s, last_s, late_s = _times(served) * speedup
        return Run(
            policy=policy,
            request_ids=tuple(shot.request_id for shot in shots),
            arrival_s=arrivals_s,
            refusals=Counter(one.reason for one in served if isinstance(one, Refused)),
            ttft_s=first_s,
            ttlt_s=last_s,
            late_s=late_s,
            predicted=tuple(watcher.predicted.get(shot.request_id) for shot in shots),
            counted=counted,
            explained=watcher.best_explained(),
        )

    @asynccontextmanager
    async def _servers(self, policy: str, logs: list[Path]) -> AsyncIterator[str]:
        """The sidecar's URL; sidecar and engine end on the way out."""
        options = self._options
        settings = self._files / f"settings-{self._seed}.json"
        settings.write_bytes(msgspec.json.encode(self._settings()))
        engine = ["--profile", options.profile, "--max-num-seqs", str(options.slots), "--speedup", str(options.speedup)]
        engine += ["--stream-interval", str(options.stream_interval), "--lengths", str(self._lengths)]
        engine += ["--kv-tokens", str(options.kv_tokens)]
        async with child("sagesched_sim", (*engine, "--model", MODEL, "--port", "0"), logs[0]) as upstream:
            sidecar = ("--upstream", upstream, "--settings", str(settings), "--policy", policy, "--port", "0")
            async with child("sagesched_sidecar", (*sidecar, "--slots", str(options.slots)), logs[1]) as url:
                yield url

    def _settings(self) -> dict[str, dict[str, object]]:
        """Only what a run needs to be fair: one history for every policy, none of it from the measured part."""
        return {
            "scheduling": {"maxWaitSeconds": WAIT_BOUND_S / self._options.speedup},
            "history": {"seedFile": str(self._history), "learn": False},
            "queue": {"maxRequests": len(self._exchanges) + 1, "maxAgeSeconds": QUEUE_AGE_BOUND_S},
        }


def _times(served: tuple[Served | Refused, ...]) -> FloatArray:
    """Time to first token, time to last token, lateness: (3, requests), NaN where there is no answer."""
    rows = [
        (np.nan, np.nan, np.nan)
        if isinstance(one, Refused)
        else (one.first_token_s - one.arrival_s, one.last_token_s - one.arrival_s, one.sent_s - one.arrival_s)
        for one in served
    ]
    return np.array(rows).T


def _write_lines(path: Path, rows: Iterable[Mapping[str, object]]) -> None:
    path.write_bytes(b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
