"""`python -m bench [NAME ...]` from the repository's root: figures as a table, and in build/bench.json."""

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench import predict, proxy, queueing, shadow, streaming
from bench.figures import Result
from bench.machine import load, machine, speed

BENCHMARKS: dict[str, Callable[[Callable[[str], None], str | None], Result]] = {
    "predict": predict.run,
    "proxy": proxy.run,
    "shadow": shadow.run,
    "streaming": streaming.run,
    "queue": queueing.run,
}
EXIT_MISSED = 1


def parser() -> argparse.ArgumentParser:
    """The command line."""
    out = argparse.ArgumentParser(
        prog="python -m bench",
        description=f"Measure against stated limits. Ends with {EXIT_MISSED} when one is missed.",
    )
    out.add_argument("names", nargs="*", metavar="NAME", help=f"which of {', '.join(BENCHMARKS)} (default: all)")
    out.add_argument("--out", type=Path, default=Path("build/bench.json"), help="where figures go (%(default)s)")
    out.add_argument("--no-limits", action="store_true", help="end with 0 whatever was missed")
    minilm = out.add_mutually_exclusive_group()
    minilm.add_argument("--no-minilm", action="store_true", help="without all-MiniLM-L6-v2, which needs about 6 GB")
    minilm.add_argument("--minilm-python", metavar="FILE", help="Python of an environment that has it already")
    return out


def main() -> int:
    """Run what was asked for."""
    given = parser().parse_args()
    if unknown := set(given.names) - set(BENCHMARKS):
        parser().error(f"no benchmark named {', '.join(sorted(unknown))}; there are {', '.join(BENCHMARKS)}")
    minilm = "" if given.no_minilm else given.minilm_python
    document: dict[str, Any] = {"machine": machine(), "load_before": load(), "benchmarks": {}}
    print(f"reference before: {(before := speed())}, load {load()[0]}")
    document["speed_before"] = before
    missed: list[str] = []
    for name in given.names or BENCHMARKS:
        began = time.monotonic()
        result = BENCHMARKS[name](_say, minilm)
        print(f"{name} ({time.monotonic() - began:.0f} s, load {load()[0]})")
        for line in (*(figure.row() for figure in result.figures), *(f"  note: {note}" for note in result.notes)):
            print(line, flush=True)
        document["benchmarks"][name] = result.document()
        missed += [f"{name}: {figure.name.strip()}" for figure in result.figures if figure.missed]
    document |= {"load_after": load(), "speed_after": speed(), "missed": missed}
    print(f"reference after: {document['speed_after']}")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(f"written to {given.out}" + "".join(f"\nlimit missed: {name}" for name in missed))
    return EXIT_MISSED if missed and not given.no_limits else 0


def _say(what: str) -> None:
    """Progress, apart from the table."""
    print(f"... {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
