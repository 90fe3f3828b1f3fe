"""The history window: what finished requests looked like and how long their outputs were (docs/method.md section 1)."""

import math
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sagesched.lengths import BoolArray, FloatArray
from sagesched.request import Features
from sagesched.retention import Retention

Vector = npt.NDArray[np.float32]
Rows = npt.NDArray[np.intp]

NO_NUMBER = 0.0
ASKED_CLASS = 100
MAX_EFFORTS = 100
STRIP_ROWS = 16
COLUMNS = (
    "_vectors",
    "_group",
    "length_class",
    "output_tokens",
    "censored",
    "asked_number",
    "tools",
    "effort",
    "plain",
    "turn",
    "weight",
)
"""The window's arrays; a record is one place in the last dimension of each."""


class Group(NamedTuple):
    """Whose history it is: records of another model or tenant are never looked at."""

    model: str = ""
    tenant: str = ""


class Discount(NamedTuple):
    """What to make of records from before a change of lengths."""

    before: int
    """Those that were learnt before that turn."""
    weight: float
    """What they count for."""
    factor: float = 1.0
    """Their lengths are read as so many times what they were."""


class Neighbours(NamedTuple):
    """Records near a prompt, most similar first."""

    rows: Rows
    similarities: FloatArray
    output_tokens: FloatArray


NO_NEIGHBOURS = Neighbours(np.zeros(0, dtype=np.intp), np.zeros(0), np.zeros(0))


def length_class(prompt_tokens: float, asked_number: float | None) -> int:
    """What a request has in common with many others: how much output it asks for, else how long its input is.

    Steps of a factor of the square root of two in what is asked for, of two in the input.
    """
    if asked_number:
        return ASKED_CLASS + round(2 * math.log2(1 + asked_number))
    return round(math.log2(1 + max(0.0, prompt_tokens)))


def is_plain(features: Features) -> bool:
    """Whether the features say nothing that the prompt's embedding does not."""
    return not (features.asked_number or features.tools or features.effort)


class HistoryWindow:
    """The last `capacity` records in all: unit embeddings beside columns of facts. What gives way to a new record when
    it is full is retention.py's to say: the oldest, but for each tenant's part.

    Search is exact: one matrix-vector product over the rows in use. Memory is `capacity * dimensions * 4` bytes and a
    few words a row. No prompt text comes in.
    """

    def __init__(self, capacity: int, dimensions: int) -> None:
        self.capacity = capacity
        self.dimensions = dimensions
        # A record is a column: the product then runs along memory, at half the time of one that sums row by row.
        self._vectors = np.zeros((dimensions, capacity), dtype=np.float32)
        self._group = np.full(capacity, -1, dtype=np.int32)
        self.length_class = np.zeros(capacity, dtype=np.int16)
        self.output_tokens = np.zeros(capacity)
        self.censored: BoolArray = np.zeros(capacity, dtype=np.bool_)
        self.asked_number = np.full(capacity, NO_NUMBER)
        self.tools: BoolArray = np.zeros(capacity, dtype=np.bool_)
        self.effort = np.zeros(capacity, dtype=np.int16)
        self.plain: BoolArray = np.zeros(capacity, dtype=np.bool_)
        """Where a record asked for no amount, without tools, at no effort of its own: nearly everywhere."""
        self.turn = np.zeros(capacity, dtype=np.int64)
        """How many records the window had learnt before this one."""
        self.weight = np.ones(capacity)
        """What a record counts for: less than 1 once lengths have changed since (`discount`)."""
        self.learnt = 0
        """Records learnt since the start, of all groups."""
        self._groups: dict[Group, int] = {}
        self._counts: dict[int, int] = {}
        self._efforts: dict[str, int] = {"": 0}
        self._retention = Retention(capacity)

    @property
    def _size(self) -> int:
        return len(self._retention)

    def __len__(self) -> int:
        return self._size

    def count(self, group: Group) -> int:
        """How many records the group has in the window."""
        number = self._groups.get(group)
        return 0 if number is None else self._counts[number]

    def tenants(self) -> set[str]:
        """Whose records are in the window."""
        return {group.tenant for group in self._groups}

    def rows(self, group: Group) -> Rows:
        """The group's rows, in no order."""
        return np.flatnonzero(self._group[: self._size] == self._groups.get(group, -1))

    def append(
        self,
        group: Group,
        embedding: Vector,
        *,
        prompt_tokens: int,
        output_tokens: int,
        censored: bool = False,
        features: Features | None = None,
    ) -> int | None:
        """Remember one finished request in place of an older record; returns its row. None: it was left out, because
        there are so many of the same prompt (retention.py).

        `embedding`: (dimensions,) unit float32. Raises ValueError for another shape.
        """
        self._check_shape(embedding)
        features = features or Features()
        before = self._size
        row = self._retention.place(group.tenant, hash((group, embedding.tobytes())))
        if row is None:
            return None
        if row < before:
            self._forget(row)
        self._vectors[:, row] = embedding
        self._group[row] = self._number(group)
        self._counts[int(self._group[row])] += 1
        self.length_class[row] = length_class(prompt_tokens, features.asked_number)
        self.output_tokens[row] = output_tokens
        self.censored[row] = censored
        self.asked_number[row] = features.asked_number or NO_NUMBER
        self.tools[row] = features.tools
        self.effort[row] = self._remember_effort(features.effort)
        self.plain[row] = is_plain(features)
        self.turn[row] = self.learnt
        self.weight[row] = 1.0
        self.learnt += 1
        return row

    def resize(self, capacity: int) -> int:
        """Hold so many records from now on; what is too much is forgotten: how many."""
        return self._rebuild(capacity, self._retention.by_age())

    def discount(self, model: str, by: Discount) -> None:
        """Records of a model from before a change count for less, and as that much longer, from now on."""
        numbers = [number for group, number in self._groups.items() if group.model == model]
        rows = np.flatnonzero(np.isin(self._group[: self._size], numbers) & (self.turn[: self._size] < by.before))
        self.weight[rows] *= by.weight
        self.output_tokens[rows] = np.maximum(1.0, self.output_tokens[rows] * by.factor)

    def forget(self, tenant: str) -> int:
        """Forget all records of a tenant: how many."""
        numbers = [number for group, number in self._groups.items() if group.tenant == tenant]
        of_tenant = np.isin(self._group, numbers)
        return self._rebuild(self.capacity, [row for row in self._retention.by_age() if not of_tenant[row]])

    def _rebuild(self, capacity: int, by_age: list[int]) -> int:
        """A window of that size that learnt these rows in that order; how many records it lacks."""
        retention = Retention(capacity)
        moved: dict[int, int] = {}
        groups = {number: group for group, number in self._groups.items()}
        for row in by_age:
            group = groups[int(self._group[row])]
            place = retention.place(group.tenant, hash((group, self._vectors[:, row].tobytes())))
            if place is not None:
                moved[place] = row
        kept = np.array([moved[place] for place in range(len(moved))], dtype=np.intp)
        rebuilt = {name: _moved(getattr(self, name), kept, capacity) for name in COLUMNS}  # no memory: nothing changes
        gone = set(range(self._size)) - set(moved.values())
        for row in gone:
            self._forget(row)
        for name, column in rebuilt.items():
            setattr(self, name, column)
        self.capacity, self._retention = capacity, retention
        return len(gone)

    def nearest(self, group: Group, embedding: Vector, count: int, threshold: float) -> Neighbours:
        """The `count` nearest records of the group and all at or above `threshold`, at most twice `count`.

        Raises ValueError for a vector of another shape, whatever the window holds: it could not be learnt either.
        """
        self._check_shape(embedding)
        number = self._groups.get(group)
        if number is None:
            return NO_NEIGHBOURS
        similar = embedding @ self._vectors[:, : self._size]
        of_group = None if self._counts[number] == self._size else self.rows(group)
        if of_group is not None:
            similar = similar[of_group]
        above = int(np.count_nonzero(similar >= threshold))
        near = _largest(similar, min(max(count, min(above, 2 * count)), similar.size))
        rows = near if of_group is None else of_group[near]
        return Neighbours(rows, similar[near].astype(np.float64), self.output_tokens[rows])

    def effort_number(self, effort: str) -> int:
        """The number under which records of that reasoning effort stand; -1 where there are none."""
        return self._efforts.get(effort, -1)

    def _remember_effort(self, effort: str) -> int:
        """A small number for the effort; those beyond the first hundred share one."""
        if effort not in self._efforts and len(self._efforts) >= MAX_EFFORTS:
            return MAX_EFFORTS
        return self._efforts.setdefault(effort, len(self._efforts))

    def _check_shape(self, embedding: Vector) -> None:
        if embedding.shape != (self.dimensions,):
            raise ValueError(f"embedding: expected shape ({self.dimensions},), got {embedding.shape}")

    def _number(self, group: Group) -> int:
        number = self._groups.get(group)
        if number is None:
            number = max(self._counts, default=-1) + 1
            self._groups[group] = number
            self._counts[number] = 0
        return number

    def _forget(self, row: int) -> None:
        number = int(self._group[row])
        self._counts[number] -= 1
        if not self._counts[number]:
            del self._counts[number]
            self._groups = {g: n for g, n in self._groups.items() if n != number}


def _moved(column: npt.NDArray[Any], rows: Rows, capacity: int) -> npt.NDArray[Any]:
    """These rows of a column at the beginning of one with another capacity."""
    moved = np.zeros((*column.shape[:-1], capacity), dtype=column.dtype)
    moved[..., : rows.size] = column[..., rows]
    return moved


def _largest(values: npt.NDArray[np.float32], wanted: int) -> Rows:
    """Where the `wanted` largest values are, the largest first, of equal ones the first.

    Of the largest in each of many strips, the `wanted`-th is reached by so many values at least: a bound that one pass
    along memory finds, so that few are left to be sorted. A quarter of the time that partitioning them all takes.
    """
    strips = values.size // STRIP_ROWS
    if wanted > strips:
        return (-values).argsort(kind="stable")[:wanted]
    highest = values[: strips * STRIP_ROWS].reshape(STRIP_ROWS, strips).max(axis=0)
    bound = np.partition(highest, strips - wanted)[strips - wanted]
    rows = np.flatnonzero(values >= bound)
    return rows[(-values[rows]).argsort(kind="stable")[:wanted]]
