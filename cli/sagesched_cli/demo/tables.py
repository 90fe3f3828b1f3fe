"""What the demo prints: the policies side by side, the predictions, one request explained. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

from sagesched_cli.demo.calibration import Calibration
from sagesched_cli.demo.report import Report
from sagesched_cli.demo.statistics import Ratio
from sagesched_cli.reasons import why

ROWS: tuple[tuple[str, str, str], ...] = tuple(
    (f"{name} {figure.upper() if figure[0] == 'p' else figure}", times, figure)
    for name, times in (("TTLT", "ttlt_s"), ("TTFT", "ttft_s"))
    for figure in ("mean", "p50", "p95", "p99", "max")
)
"""Title, group and figure of each row."""
LATE_LIMIT_S = 0.1
"""Wall seconds by which one request in a hundred may be late before the machine is called too busy."""


def change(value: float, base: float) -> str:
    """The change from `base` in percent, signed."""
    return f"{100 * (value / base - 1):+.1f} %" if base else "-"


def text(found: Report) -> str:
    """All of it."""
    lines = [*_about(found), "", *_comparison(found), "", *_predictions(found.calibration, found.history)]
    if found.explained is not None:
        lines += ["", *_explained(found.explained)]
    return "\n".join([*lines, *_warnings(found)])


def _warnings(found: Report) -> Iterable[str]:
    """What would make the figures worth less."""
    for policy, one in found.policies.items():
        for what, counts in (("refused", one.refusals), ("without a prediction", one.fallbacks)):
            if counts:
                yield f"\nWARNING: {policy}: requests {what}: " + ", ".join(f"{n} {why}" for why, n in counts.items())
    if found.late_p99_s > LATE_LIMIT_S * found.speedup:
        yield "\nWARNING: this machine was too busy to send in time; close other programs or lower --speedup"


def _about(found: Report) -> Iterable[str]:
    seeds = ", ".join(map(str, found.seeds))
    yield f"{found.data}: {found.requests} requests at {found.load:g} x capacity, seed {seeds}; {found.refused} refused"
    yield (
        f"engine {found.profile}, {found.slots} slots, {found.kv_tokens} tokens of KV cache: "
        f"capacity {found.capacity_rps:.2f} requests/s"
    )
    yield (
        f"seconds are engine seconds (wall x {found.speedup:g}); P99 of the client's own delay {found.late_p99_s:.2f} s"
    )


def _comparison(found: Report) -> Iterable[str]:
    policies = list(found.policies)
    reference = found.policies[policies[0]]
    yield f"{'seconds':<10} {policies[0]:>10}" + "".join(
        f" {policy:>10} {'change':>9}  {'95 % bounds':<20}" for policy in policies[1:]
    )
    for title, times, figure in ROWS:
        base = getattr(getattr(reference, times), figure)
        line = f"{title:<10} {base:>10.2f}"
        for policy in policies[1:]:
            value = getattr(getattr(found.policies[policy], times), figure)
            bounds = _bounds(found.ratios[policy][times].get(figure))
            line += f" {value:>10.2f} {change(value, base):>9}  {bounds:<20}"
        yield line.rstrip()


def _bounds(ratio: Ratio | None) -> str:
    return "" if ratio is None else f"{change(ratio.low, 1)} to {change(ratio.high, 1)}"


def _predictions(found: Calibration, history: int) -> Iterable[str]:
    yield f"predictions, learnt from {history} earlier requests (none of those measured):"
    yield f"  Spearman of predicted mean and true length {found.spearman:.2f}"
    yield f"  the 80 % interval holds {100 * found.coverage_80:.0f} % of true lengths"
    yield "  true lengths by tenth of their predicted distribution, %: " + " ".join(
        f"{100 * share:.0f}" for share in found.pit_deciles
    )


def _explained(found: Mapping[str, Any]) -> Iterable[str]:
    yield f"one request explained ({found['request_id']}, {found['phase']} when asked):"
    yield f"  prompt       {' '.join(found['prompt'].split())}"
    yield from (f"  {label:<12} {text}" for label, text in why(found))
    yield (
        f"  truth        {found['true_output_tokens']} tokens; first after {found['ttft_s']:.1f} s, "
        f"last after {found['ttlt_s']:.1f} s"
    )
