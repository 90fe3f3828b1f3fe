"""What a benchmark hands back: named figures with units, limits and what they are compared with."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number. `limit`: the value that it may not exceed; None where nothing is promised."""

    name: str
    value: float
    unit: str
    limit: float | None = None
    beside: str = ""
    """What it is compared with, and how much that is."""

    @property
    def missed(self) -> bool:
        """Whether it is above its limit."""
        return self.limit is not None and not self.value <= self.limit

    def row(self) -> str:
        """One line of the table."""
        limit = "" if self.limit is None else f"limit {self.limit:g}"
        verdict = "" if self.limit is None else ("MISSED" if self.missed else "ok")
        return f"  {self.name:<52} {self.value:>11,.4g} {self.unit:<8} {limit:<12} {verdict:<7} {self.beside}".rstrip()


@dataclass(frozen=True, slots=True)
class Result:
    """Everything that one benchmark measured."""

    benchmark: str
    figures: tuple[Figure, ...]
    setting: dict[str, Any]
    """Seeds, counts and whatever else is needed to repeat it."""
    notes: tuple[str, ...] = ()

    def document(self) -> dict[str, Any]:
        """As it is written to build/bench.json."""
        figures = [asdict(figure) | {"missed": figure.missed} for figure in self.figures]
        return {"setting": self.setting, "figures": figures, "notes": list(self.notes)}


def quantile(values: Iterable[float], share: float) -> float:
    """The value below or at which so large a share of the values lies (nearest rank)."""
    ordered: Sequence[float] = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
