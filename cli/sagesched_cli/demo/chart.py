"""A line chart as SVG text: axes with labels and round ticks, one stepped or straight line a series. Pure."""

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from sagesched_cli.demo.statistics import FloatArray

WIDTH, HEIGHT = 760, 340
LEFT, RIGHT, TOP, BOTTOM = 62, 16, 16, 48
MAX_POINTS = 600
"""Points of a line; more would not be seen."""


class Series(NamedTuple):
    """One line; `slot` chooses its colour (CSS class s0, s1, ...)."""

    name: str
    x: FloatArray
    y: FloatArray
    slot: int


class Axis(NamedTuple):
    """From 0 to `top`, with a tick at every multiple of `step`."""

    label: str
    top: float
    step: float

    @classmethod
    def over(cls, label: str, highest: float, ticks: int = 6) -> "Axis":
        """The axis with about that many round ticks that holds 0 and `highest`."""
        raw = max(highest, 1e-9) / ticks
        magnitude = 10.0 ** math.floor(math.log10(raw))
        step = next(m * magnitude for m in (1, 2, 2.5, 5, 10) if m * magnitude >= raw * (1 - 1e-9))
        return cls(label, math.ceil(highest / step - 1e-9) * step or step, step)

    def ticks(self) -> list[float]:
        """Where the ticks are."""
        return [index * self.step for index in range(round(self.top / self.step) + 1)]


def line_chart(title: str, x_axis: Axis, y_axis: Axis, series: Sequence[Series]) -> str:
    """The `<svg>` element. Colours come from the page's style."""
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">',
        *(_grid_line(y_axis, value) for value in y_axis.ticks()),
        *(_x_tick(x_axis, value) for value in x_axis.ticks()),
        _labels(x_axis, y_axis),
        *(_line(one, x_axis, y_axis) for one in series),
        "</svg>",
    ]
    return "\n".join(parts)


def _x(axis: Axis, value: float) -> float:
    return LEFT + (WIDTH - LEFT - RIGHT) * value / axis.top


def _y(axis: Axis, value: float) -> float:
    return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / axis.top


def _grid_line(axis: Axis, value: float) -> str:
    y = _y(axis, value)
    kind = "axis" if value == 0 else "grid"
    return (
        f'<line class="{kind}" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="tick" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>'
    )


def _x_tick(axis: Axis, value: float) -> str:
    return (
        f'<text class="tick" x="{_x(axis, value):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{value:g}</text>'
    )


def _labels(x_axis: Axis, y_axis: Axis) -> str:
    middle = (TOP + HEIGHT - BOTTOM) / 2
    return (
        f'<text class="label" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 10}" text-anchor="middle">'
        f"{escape(x_axis.label)}</text>"
        f'<text class="label" transform="translate(16 {middle}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_axis.label)}</text>"
    )


def _line(series: Series, x_axis: Axis, y_axis: Axis) -> str:
    stride = max(1, -(-series.x.size // MAX_POINTS))
    kept = [*range(0, series.x.size, stride), series.x.size - 1]
    points = " ".join(f"{_x(x_axis, series.x[i]):.1f},{_y(y_axis, series.y[i]):.1f}" for i in kept)
    return f'<polyline class="line s{series.slot}" points="{points}"><title>{escape(series.name)}</title></polyline>'
