"""`sagesched top`: one or more sidecars side by side."""

import argparse
import json
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sagesched_cli import cells
from sagesched_cli.exits import OK, CommandError
from sagesched_cli.live import add_live_options, console, watch
from sagesched_cli.sample import Between, Sample, between, take
from sagesched_cli.sidecar_client import add_sidecar_options, urls_of

if TYPE_CHECKING:
    from rich.table import Table

DESCRIPTION = """One or more sidecars side by side: throughput, queue, waits, how good predictions are, settings. Rates
and waits are those of the last minute; with --once, of one interval. Ctrl-C ends the live view."""
WINDOW_S = 60.0

Take = Callable[[str, float, float], Sample]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    add_live_options(parser, interval_s=2.0)
    add_sidecar_options(parser, several=True)


def run(given: argparse.Namespace) -> int:
    """Look once or again and again. Raises CommandError when no sidecar answers at first."""
    watched = [Watched(url, given.timeout) for url in urls_of(given)]
    look(watched)
    if given.json or given.once or not sys.stdout.isatty():
        time.sleep(given.interval)
        look(watched)
        if given.json:
            print(json.dumps([one.facts() for one in watched], indent=2))
        else:
            console().print(table([one.facts() for one in watched]))
        return OK

    def draw() -> "Table":
        look(watched)
        return table([one.facts() for one in watched])

    return watch(draw, given.interval)


class Watched:
    """A sidecar and its samples of the last minute."""

    def __init__(self, url: str, timeout_s: float, ask: Take = take, clock: Callable[[], float] = time.monotonic):
        self.url = url
        self._timeout_s = timeout_s
        self._ask = ask
        self._clock = clock
        self._samples: deque[Sample] = deque()
        self.trouble: CommandError | None = None

    def look(self) -> None:
        """Take a sample; trouble is kept, and what came before it forgotten."""
        try:
            self._samples.append(self._ask(self.url, self._timeout_s, self._clock()))
        except CommandError as error:
            self.trouble = error
            self._samples.clear()
            return
        self.trouble = None
        while len(self._samples) > 2 and self._samples[1].at_s <= self._samples[-1].at_s - WINDOW_S:
            self._samples.popleft()

    def facts(self) -> dict[str, Any]:
        """What is known of it now, for a table or as JSON."""
        if not self._samples:
            return {"url": self.url, "reachable": False, "trouble": str(self.trouble)}
        last = self._samples[-1]
        past = between(self._samples[0] if len(self._samples) > 1 else None, last)
        return {"url": self.url, "reachable": True, **past._asdict(), "status": last.status}


def look(watched: Sequence[Watched]) -> None:
    """A sample of each. Raises what the first says when none of them answers."""
    for one in watched:
        one.look()
    if watched[0].trouble and all(one.trouble for one in watched):
        raise watched[0].trouble


def table(facts: Sequence[Mapping[str, Any]]) -> "Table":
    """A column for each sidecar."""
    from rich.table import Table
    from rich.text import Text

    out = Table(box=None, pad_edge=False)
    out.add_column("sidecar", no_wrap=True)
    for one in facts:
        out.add_column(Text(one["url"]), justify="right")
    told = [dict(_column(one)) if one["reachable"] else {"state": "not reachable"} for one in facts]
    for label in max(told, key=len):
        out.add_row(label, *(Text(one.get(label, "")) for one in told))
    return out


class _Best(NamedTuple):
    """The calibration of the model that was scored most."""

    model: str
    found: Mapping[str, Any]


def _column(one: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    status = one["status"]
    gate, engine, past = status["gate"], status["engine"], Between(*(one[name] for name in Between._fields))
    yield "state", _state(status)
    yield "mode", f"{status.get('mode', 'gate')}, {status['policy']}"
    yield "settings", f"{status['settings_digest']} {(status.get('settings') or {}).get('revision') or ''}".rstrip()
    yield "requests/s", cells.rate(past.requests_per_s)
    yield "output tokens/s", cells.rate(past.output_tokens_per_s)
    yield "refused/s", cells.rate(past.rejected_per_s)
    yield "running", f"{gate['running']} of {gate['slots'] or '?'} slots"
    yield "waiting", str(gate["waiting"])
    yield "predicted tokens waiting", cells.tokens(gate["predicted_waiting_tokens"])
    yield "oldest, s", cells.seconds(gate["oldest_s"])
    yield "wait P50, s", cells.seconds(past.wait_p50_s)
    yield "wait P95, s", cells.seconds(past.wait_p95_s)
    yield "engine's own queue", str(engine.get("waiting", "?"))
    yield "history", f"{status['history_rows']} rows"
    yield from _predictions(status.get("calibration") or {})


def _state(status: Mapping[str, Any]) -> str:
    if status["draining"]:
        return "draining"
    return "ready" if status["engine"]["reachable"] else "engine not reachable"


def _predictions(calibration: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if not calibration:
        yield "predictions of", "-"
        return
    best = _Best(*max(calibration.items(), key=lambda item: item[1]["scored"]))
    chain = best.found["levels"].get("mixture")
    alone = [cells.printable(model, 24) for model, found in calibration.items() if found["fallback"]]
    yield "predictions of", cells.printable(best.model, 32)
    yield "  in the 80 % interval", cells.share(best.found["coverage_80"])
    yield "  skill", "-" if chain is None else f"{chain['skill']:.2f}"
    yield "fallback", ", ".join(alone) or "none"
