"""Markdown tables of demo reports: `python -m bench.demo_table build/runs/*.json`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FIGURES = ("mean", "p50", "p95", "p99", "max")


def main() -> None:
    """Print a table of each file."""
    for name in sys.argv[1:]:
        print("\n".join(lines(json.loads(Path(name).read_bytes()))))


def lines(found: dict[str, Any]) -> Iterator[str]:
    """One report: what was run, and each policy beside the first, with the paired 95 % bounds of the change."""
    seeds = ", ".join(map(str, found["seeds"]))
    yield (
        f"**{found['data']}, {found['load']:g} times capacity**, {found['arrivals']}, "
        f"{found['requests']:,} requests a seed, "
        f"seeds {seeds}; {found['refused']} refused; Spearman {found['spearman']:.2f}, "
        f"80 % interval holds {100 * found['calibration']['coverage_80']:.0f} %\n"
    )
    reference, *others = found["policies"]
    for other in others:
        yield f"| seconds | {reference} | {other} | change | 95 % bounds |"
        yield "|---|---|---|---|---|"
        for times, title in (("ttlt_s", "TTLT"), ("ttft_s", "TTFT")):
            for figure in FIGURES:
                base, value = (found["policies"][name][times][figure] for name in (reference, other))
                ratio = found["ratios"][other][times].get(figure)
                bounds = f"{_percent(ratio['low'])} to {_percent(ratio['high'])}" if ratio else ""
                yield f"| {title} {figure} | {base:.1f} | {value:.1f} | {_percent(value / base)} | {bounds} |"
        yield ""
    yield "| seed | " + " | ".join(f"mean TTLT, {other} over {reference} | P99" for other in others) + " | Spearman |"
    yield "|---|" + "---|---|" * len(others) + "---|"
    for one in found["per_seed"]:
        cells = " | ".join(
            f"{_percent(one[figure][other] / one[figure][reference])}"
            for other in others
            for figure in ("mean_ttlt_s", "p99_ttlt_s")
        )
        yield f"| {one['seed']} | {cells} | {one['spearman']:.2f} |"
    yield ""


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


if __name__ == "__main__":
    main()
