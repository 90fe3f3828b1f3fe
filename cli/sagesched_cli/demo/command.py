"""`sagesched demo`: from a command line to a table, a report and a picture."""

import asyncio
import contextlib
import gc
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from sagesched_cli.demo.capacity import capacity_rps
from sagesched_cli.demo.errors import DemoError
from sagesched_cli.demo.options import DemoOptions, parse
from sagesched_cli.demo.picture import page
from sagesched_cli.demo.progress import Progress
from sagesched_cli.demo.report import Experiment, Report, report
from sagesched_cli.demo.runs import Laboratory
from sagesched_cli.demo.tables import text
from sagesched_sim.workload import sources
from sagesched_sim.workload.arrivals import arrivals_named
from sagesched_sim.workload.exchange import WorkloadError
from sagesched_sim.workload.traffic import Traffic

EXIT_FAILED = 1
EXIT_USAGE = 64
EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str]) -> int:
    """0 when everything was measured; 1 when a run failed, 64 for wrong options or data, 130 when interrupted."""
    try:
        options = parse(arguments)
    except ValueError as error:
        print(f"sagesched demo: {error}", file=sys.stderr)
        return EXIT_USAGE
    _allow_many_connections()
    _collect_garbage_seldom()
    try:
        _run_loop(options)
    except WorkloadError as error:
        print(f"sagesched demo: {error}", file=sys.stderr)
        return EXIT_USAGE
    except DemoError as error:
        print(f"sagesched demo: {error}", file=sys.stderr)
        return EXIT_FAILED
    except (KeyboardInterrupt, asyncio.CancelledError):
        print("sagesched demo: interrupted; engine and sidecar are ended", file=sys.stderr)
        return EXIT_INTERRUPTED
    return 0


def _run_loop(options: DemoOptions) -> None:
    """Under uvloop where it is installed, under asyncio's own loop where not."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(_demo(options))
    else:
        uvloop.run(_demo(options))


def _allow_many_connections() -> None:
    """Every waiting request is a connection: raise the soft limit on open files; children inherit it."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def _collect_garbage_seldom() -> None:
    """A pause of the collector is a request sent late; what is loaded so far stays."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


async def _demo(options: DemoOptions) -> None:
    task = asyncio.current_task()
    if task is not None and sys.platform != "win32":
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    experiments, history = [], 0
    total = options.requests * len(options.seeds) * len(options.policies)
    with tempfile.TemporaryDirectory(prefix="sagesched-demo-") as folder, Progress(total, sys.stderr) as progress:
        for seed in options.seeds:
            traffic = sources.load(options.data, seed, history=options.history, requests=options.requests)
            history = len(traffic.history)
            experiments.append(await _experiment(options, traffic, seed, Path(folder), progress))
    _publish(options, report(options, experiments, history), experiments)


async def _experiment(options: DemoOptions, traffic: Traffic, seed: int, files: Path, progress: Progress) -> Experiment:
    """Capacity first, then the same arrivals under each policy."""
    logs = options.logs
    laboratory = Laboratory(options, traffic, seed=seed, files=files, logs=logs, answered=progress.step)
    served_rps = capacity_rps(
        traffic.measured, profile=options.profile, slots=options.slots, kv_tokens=options.kv_tokens
    )
    rng = np.random.default_rng([seed, 2])
    arrivals_s = arrivals_named(options.arrivals)(options.load * served_rps, len(traffic.measured), rng)
    runs = {}
    for policy in options.policies:
        progress.stage(f"seed {seed}, {policy}")
        runs[policy] = await laboratory.run(policy, arrivals_s)
    return Experiment(seed, served_rps, traffic.measured, runs)


def _publish(options: DemoOptions, found: Report, experiments: Sequence[Experiment]) -> None:
    picture = options.out.with_suffix(".html")
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    picture.write_text(page(found, experiments), encoding="utf-8")
    print(text(found))
    print(f"\nWritten: {options.out} and {picture}; logs of engine and sidecar: {options.logs}")
