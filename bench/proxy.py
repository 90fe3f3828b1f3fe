"""What the sidecar adds to a request: the same ones directly and through it, in turn, in one run."""

import json
import tempfile
from collections.abc import Callable, Sequence
from typing import IO

from bench.client import MODEL, Connection, request_bytes
from bench.figures import Figure, Result, quantile
from bench.processes import Process, sidecar, started
from bench.prompts import Prompts

PAIRS = 1500
STREAMS = 500
WARM_UP = 100
STREAM_EVENTS = 3
HISTORY_ROWS = 10_000
SEED = 1
LIMIT_ADDED_MS = 1.5

Timed = Callable[[Connection, bytes], float]


def run(say: Callable[[str], None], _: str | None) -> Result:
    """Measure the sidecar, and a bare pass-through proxy beside it."""
    with (
        tempfile.NamedTemporaryFile("w", suffix=".jsonl") as seed,
        started("bench.upstream") as upstream,
        sidecar(upstream, "--seed-history", history(seed)) as ours,
        started("bench.passthrough", upstream.url) as bare,
    ):
        targets = (upstream, ours, bare)
        say(f"proxy: {PAIRS:,} small requests each directly, through the sidecar, through a bare aiohttp proxy")
        whole = interleaved(targets, [request_bytes(stream=False)] * 3, PAIRS, Connection.whole_s)
        say(f"proxy: the first event of {STREAMS:,} streams, in the same way")
        stream = request_bytes(stream=True, events=STREAM_EVENTS, pace_ms=1)
        first = interleaved(targets, [stream] * 3, STREAMS, Connection.first_event_s)
    figures = _figures("small request", whole, limit=LIMIT_ADDED_MS) + _figures("first event of a stream", first)
    return Result(
        "proxy",
        tuple(figures),
        {"requests": PAIRS, "streams": STREAMS, "warm_up": WARM_UP, "history_rows": HISTORY_ROWS, "seed": SEED},
    )


def history(file: IO[str]) -> str:
    """A window as full as after a day's work: an empty one would make every prediction look cheap."""
    prompts = Prompts(SEED)
    for _ in range(HISTORY_ROWS):
        topic, prompt = prompts.draw_of_any_length()
        record = {"prompt": prompt, "output_tokens": prompts.output_tokens(topic), "model": MODEL}
        file.write(json.dumps(record) + "\n")
    file.flush()
    return file.name


def interleaved(targets: Sequence[Process], requests: Sequence[bytes], count: int, timed: Timed) -> list[list[float]]:
    """Seconds per target, each with its request; each round asks all of them, a different one first each time."""
    connections = [Connection(target.address) for target in targets]
    seconds: list[list[float]] = [[] for _ in targets]
    try:
        for turn in range(WARM_UP + count):
            for step in range(len(targets)):
                at = (turn + step) % len(targets)
                spent = timed(connections[at], requests[at])
                if turn >= WARM_UP:
                    seconds[at].append(spent)
    finally:
        for connection in connections:
            connection.__exit__(None, None, None)
    return seconds


def _figures(what: str, seconds: list[list[float]], limit: float | None = None) -> list[Figure]:
    direct, ours, bare = seconds
    added = [1e3 * (through - without) for through, without in zip(ours, direct, strict=True)]
    peer = [1e3 * (through - without) for through, without in zip(bare, direct, strict=True)]
    beside = f"bare aiohttp proxy adds {quantile(peer, 0.5):.3f} ms, P99 {quantile(peer, 0.99):.3f} ms"
    return [
        Figure(f"{what}: added, median", quantile(added, 0.5), "ms", limit, beside),
        Figure(f"{what}: added, P99", quantile(added, 0.99), "ms"),
        Figure(f"{what}: directly, median", 1e3 * quantile(direct, 0.5), "ms"),
        Figure(f"{what}: through the sidecar, median", 1e3 * quantile(ours, 0.5), "ms"),
    ]
