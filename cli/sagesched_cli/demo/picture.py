"""The picture of a demo: one self-contained page, no script and nothing to fetch. Pure."""

from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

from sagesched_cli.demo.chart import Axis, Series, line_chart
from sagesched_cli.demo.report import Experiment, Report
from sagesched_cli.demo.runs import Run
from sagesched_cli.demo.statistics import FloatArray
from sagesched_cli.demo.tables import ROWS, change

_STYLE = """
:root { color-scheme: light dark; --page: #fcfcfb; --ink: #1f1f1d; --quiet: #63625e; --grid: #e4e3df;
  --s0: #c2571a; --s1: #2a6fd1; --s2: #1c8a6a; --s3: #8a4fc0; --s4: #a08100; }
@media (prefers-color-scheme: dark) { :root { --page: #1a1a19; --ink: #eeede9; --quiet: #a5a49e; --grid: #363633;
  --s0: #e88b52; --s1: #6ea6f2; --s2: #4dbd9a; --s3: #b98ae6; --s4: #cfb23a; } }
body { background: var(--page); color: var(--ink); font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 800px; padding: 0 1rem; }
h1 { font-size: 1.3rem; margin-bottom: .2rem; } h2 { font-size: 1rem; margin: 1.8rem 0 .2rem; }
p { color: var(--quiet); margin: .2rem 0; } svg { width: 100%; height: auto; }
.grid { stroke: var(--grid); } .axis { stroke: var(--quiet); } .tick, .label { fill: var(--quiet); font-size: 12px; }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.key { display: inline-block; width: 1.2rem; height: 3px; margin: 0 .4rem .25rem 0; vertical-align: middle; }
.legend span + span { margin-left: 1.2rem; color: var(--ink); } .legend > span { color: var(--ink); }
table { border-collapse: collapse; margin-top: .6rem; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .9rem .2rem 0; text-align: right; } th:first-child, td:first-child { text-align: left; }
thead th { border-bottom: 1px solid var(--grid); font-weight: 600; }
""" + "".join(f".s{n} {{ stroke: var(--s{n}); }} .k{n} {{ background: var(--s{n}); }}\n" for n in range(5))


def page(found: Report, experiments: Sequence[Experiment]) -> str:
    """HTML: the times of all seeds as distribution functions, the last seed's requests in the system, the table."""
    policies = list(found.policies)
    about = (
        f"{found.data}, {found.requests} requests at {found.load:g} times capacity, seeds "
        f"{', '.join(map(str, found.seeds))}; {found.profile} with {found.kv_tokens} tokens of KV "
        "cache. Times are engine seconds."
    )
    body = [
        "<h1>SageSched demo</h1>",
        f"<p>{escape(about)}</p>",
        _legend(policies),
        "<h2>Time to last token: share of requests that are answered within it</h2>",
        _distribution(policies, experiments),
        f"<h2>Requests waiting or running, seed {experiments[-1].seed}</h2>",
        _in_system(policies, experiments[-1]),
        "<h2>In figures</h2>",
        _table(found),
    ]
    head = f'<meta charset="utf-8"><title>SageSched demo</title><style>{_STYLE}</style>'
    return (
        f'<!doctype html>\n<html lang="en">\n<head>{head}</head>\n<body>\n' + "\n".join(body) + "\n</body>\n</html>\n"
    )


def _legend(policies: Iterable[str]) -> str:
    keys = (f'<span><i class="key k{slot}"></i>{escape(name)}</span>' for slot, name in enumerate(policies))
    return f'<p class="legend">{"".join(keys)}</p>'


def _distribution(policies: Sequence[str], experiments: Sequence[Experiment]) -> str:
    series = []
    for slot, policy in enumerate(policies):
        times_s = np.concatenate([one.runs[policy].ttlt_s for one in experiments])
        times_s = np.sort(times_s[~np.isnan(times_s)])
        series.append(Series(policy, times_s, 100 * np.arange(1, times_s.size + 1) / times_s.size, slot))
    x_axis = Axis.over("time to last token, engine seconds", max(float(one.x[-1]) for one in series), 8)
    return line_chart("Distribution of the time to last token", x_axis, Axis("% of requests", 100, 20), series)


def _in_system(policies: Sequence[str], experiment: Experiment) -> str:
    series = []
    for slot, policy in enumerate(policies):
        moments_s, present = requests_present(experiment.runs[policy])
        series.append(Series(policy, moments_s, present, slot))
    x_axis = Axis.over("engine seconds since the first arrival", max(float(one.x[-1]) for one in series), 8)
    y_axis = Axis.over("requests in the system", max(float(one.y.max()) for one in series), 5)
    return line_chart("Requests in the system over time", x_axis, y_axis, series)


def requests_present(run: Run) -> tuple[FloatArray, FloatArray]:
    """Moments at which a request arrived or ended, ascending, and how many were present right after each."""
    answered = ~np.isnan(run.ttlt_s)
    arrivals_s = run.arrival_s[answered]
    moments_s = np.concatenate([arrivals_s, arrivals_s + run.ttlt_s[answered]])
    steps = np.concatenate([np.ones(arrivals_s.size), -np.ones(arrivals_s.size)])
    order = np.argsort(moments_s, kind="stable")
    return moments_s[order], np.cumsum(steps[order])


def _table(found: Report) -> str:
    policies = list(found.policies)
    reference = found.policies[policies[0]]
    rows = []
    for title, times, figure in ROWS:
        base = getattr(getattr(reference, times), figure)
        cells = [f"{base:.2f}"]
        for policy in policies[1:]:
            value = getattr(getattr(found.policies[policy], times), figure)
            cells += [f"{value:.2f}", change(value, base)]
        rows.append(f"<tr><td>{title}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>")
    heads = [policies[0], *(head for policy in policies[1:] for head in (policy, "change"))]
    head = "".join(f"<th>{escape(name)}</th>" for name in ("engine seconds", *heads))
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
