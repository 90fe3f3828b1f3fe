"""What shadow mode adds to a request that the same sidecar would pass through: the same ones in turn, in one run.

Beside it: gate mode, and a bare proxy. What it adds is the difference between a path that is watched and one that is
not, which another sidecar passes through; what any proxy costs is in both.
"""

import tempfile
from collections.abc import Callable

from bench.client import Connection, request_bytes
from bench.figures import Figure, Result, quantile
from bench.processes import sidecar, started
from bench.proxy import HISTORY_ROWS, SEED, history, interleaved

ROUNDS = 1500
STREAMS = 500
STREAM_EVENTS = 3
LIMIT_ADDED_MS = 0.3
UNWATCHED = "/v1/unwatched"


def run(say: Callable[[str], None], _: str | None) -> Result:
    """Measure shadow mode, gate mode and a bare proxy."""
    figures: list[Figure] = []
    with (
        tempfile.NamedTemporaryFile("w", suffix=".jsonl") as seed,
        started("bench.upstream") as upstream,
        sidecar(upstream, "--seed-history", (rows := history(seed)), "--mode", "shadow", "--slots", "64") as shadow,
        sidecar(upstream, "--mode", "shadow") as idle,
        sidecar(upstream, "--seed-history", rows) as gate,
        started("bench.passthrough", upstream.url) as bare,
    ):
        targets = (upstream, shadow, idle, gate, bare)
        for what, count, timed, asked in (
            ("small request", ROUNDS, Connection.whole_s, {"stream": False}),
            ("first event of a stream", STREAMS, Connection.first_event_s, _STREAM),
        ):
            say(
                f"shadow: {what}, {count:,} times directly, in shadow mode, past it, in gate mode, through a bare proxy"
            )
            watched, past = request_bytes(**asked), request_bytes(**asked, path=UNWATCHED)
            figures += _figures(what, interleaved(targets, (watched, watched, past, watched, past), count, timed))
    setting = {"requests": ROUNDS, "streams": STREAMS, "history_rows": HISTORY_ROWS, "seed": SEED}
    return Result("shadow", tuple(figures), setting)


def _figures(what: str, seconds: list[list[float]]) -> list[Figure]:
    direct, watched, past, gate, bare = seconds

    def added(through: list[float], to: list[float]) -> float:
        return quantile([1e3 * (a - b) for a, b in zip(through, to, strict=True)], 0.5)

    beside = f"through a bare aiohttp proxy {1e3 * quantile(bare, 0.5):.3f} ms"
    return [
        Figure(f"{what}: added by watching, median", added(watched, past), "ms", LIMIT_ADDED_MS),
        Figure(f"{what}: added in gate mode, median", added(gate, past), "ms"),
        Figure(f"{what}: in shadow mode, median", 1e3 * quantile(watched, 0.5), "ms", None, beside),
        Figure(f"{what}: directly, median", 1e3 * quantile(direct, 0.5), "ms"),
    ]


_STREAM = {"stream": True, "events": STREAM_EVENTS, "pace_ms": 1}
