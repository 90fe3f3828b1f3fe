"""`python -m bench.plugin`: what our scheduler adds to vLLM's, as a table and in build/bench-plugin.json."""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from bench.engine.vllm_process import environment_folder
from bench.figures import Figure, Result
from bench.machine import load, machine, speed

ROOT = Path(__file__).parents[2]
PATHS = [ROOT / "core", ROOT / "plugin", ROOT / "tests" / "harness"]
SHARES = {"64/500": 0.10, "256/2000": 0.15}
"""Of the base's median, by running/waiting."""
LEAST_US = {"64/500": 100.0}
"""What may be added however small the base is."""


def main() -> int:
    """Ends with 1 where a limit is missed, 3 where there is no engine."""
    parser = argparse.ArgumentParser(prog="python -m bench.plugin", description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/bench-plugin.json"))
    parser.add_argument("--no-limits", action="store_true", help="end with 0 whatever was missed")
    chosen, arguments = parser.parse_known_args()
    folder = environment_folder()
    if isinstance(folder, str):
        print(folder, file=sys.stderr)
        return 3
    document: dict[str, Any] = {"machine": machine(), "load_before": load(), "speed_before": speed()}
    began, figures, rows = time.monotonic(), [], []
    for row in measured(folder, arguments):
        rows.append(row)
        figures += list(figures_of(row))
        for figure in figures[-2:]:
            print(figure.row(), flush=True)
    result = Result("plugin", tuple(figures), {"rows": rows, "seconds": round(time.monotonic() - began)})
    document |= {"load_after": load(), "speed_after": speed(), "benchmarks": {"plugin": result.document()}}
    chosen.out.parent.mkdir(parents=True, exist_ok=True)
    chosen.out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    missed = [figure.name for figure in figures if figure.missed]
    print(f"written to {chosen.out}" + "".join(f"\nlimit missed: {name}" for name in missed))
    return 1 if missed and not chosen.no_limits else 0


def measured(folder: Path, arguments: list[str]) -> Any:
    """Rows of the worker in the engine's Python, as they come. Raises CalledProcessError."""
    command = [str(folder / "env" / "bin" / "python"), str(ROOT / "bench" / "plugin" / "worker.py"), *arguments]
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(Path.home()),
        "PYTHONPATH": ":".join(map(str, PATHS)),
        "HF_HUB_OFFLINE": "1",
        "VLLM_LOGGING_LEVEL": "ERROR",
    }
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as child:
        assert child.stdout is not None
        for line in child.stdout:
            if line.startswith("{"):
                yield json.loads(line)
    if child.returncode:
        raise subprocess.CalledProcessError(child.returncode, command)


def figures_of(row: dict[str, Any]) -> tuple[Figure, Figure]:
    """What is added to `schedule`, against its limit, and to a whole step."""
    size = f"{row['running']}/{row['waiting']}"
    base, ours = row["schedule_us"]
    limit = max(SHARES[size] * base, LEAST_US.get(size, 0.0)) if size in SHARES else None
    whole = [row["schedule_us"][side] + row["update_us"][side] for side in (0, 1)]
    return (
        Figure(
            name=f"added to schedule(), median, {size}, {row['mode']}",
            value=round(ours - base, 1),
            unit="us",
            limit=None if limit is None else round(limit, 1),
            beside=f"vLLM's own {base:g} us, ours {ours:g} us",
        ),
        Figure(
            name=f"added to schedule() and update, median, {size}, {row['mode']}",
            value=round(whole[1] - whole[0], 1),
            unit="us",
            beside=f"vLLM's own {whole[0]:g} us; an arrival {row['arrival_us'][0]:g} and {row['arrival_us'][1]:g} us",
        ),
    )


if __name__ == "__main__":
    sys.exit(main())
