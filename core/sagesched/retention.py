"""Which record of a full window gives way to a new one. Bookkeeping alone; the records lie in history.py.

First in, first out, with two exceptions. Half of the window is divided among the tenants, and what a tenant holds
within its part is not pushed out by others. And of one prompt there are so many records and no more: a further one
takes the place of a random one of them, or is left out, so that they stay a sample of all (a reservoir that forgets
slowly).
"""

from collections import deque
from typing import NamedTuple

import numpy as np

GUARANTEED = 0.5
"""The part of the window that is divided among the tenants."""
LEAST_ALIKE = 64
ALIKE_SHARE = 0.01
"""Records of one prompt: that part of the window, and no fewer than the least."""
REMEMBERED = 8
"""A reservoir counts its prompts up to so many times its size: from then on an eighth of them come in, and none stays
for ever."""


SLACK = 64


class _Held(NamedTuple):
    """What stands in a row."""

    age: int
    tenant: str
    alike: int


class _Tenant:
    """What a tenant has in the window."""

    def __init__(self) -> None:
        self.count = 0
        self.aside: deque[tuple[int, int]] = deque()
        """(age, row) of records whose turn to go had come, and that were within the tenant's part."""


class _Alike:
    """The records of one prompt."""

    def __init__(self) -> None:
        self.rows: list[int] = []
        self.seen = 0


class Retention:
    """Of `capacity` rows. Rows are given out from 0 on; none is free again but for a new record."""

    def __init__(self, capacity: int, seed: int = 0) -> None:
        self.capacity = capacity
        self.most_alike = max(LEAST_ALIKE, int(ALIKE_SHARE * capacity))
        self._rng = np.random.default_rng(seed)
        self._held: list[_Held] = []
        self._queue: deque[tuple[int, int]] = deque()
        self._tenants: dict[str, _Tenant] = {}
        self._alike: dict[int, _Alike] = {}
        self._age = 0

    def __len__(self) -> int:
        return len(self._held)

    def guaranteed(self, more: int = 0) -> int:
        """Records that each tenant of now, and of so many more, keeps whatever the others do."""
        return int(GUARANTEED * self.capacity) // max(1, len(self._tenants) + more)

    def by_age(self) -> list[int]:
        """The rows, the oldest first."""
        return sorted(range(len(self._held)), key=lambda row: self._held[row].age)

    def place(self, tenant: str, alike: int) -> int | None:
        """The row that a new record is to have; what stood there is gone. None: it is left out. `alike`: the same for
        records of the same prompt."""
        own = self._tenants.get(tenant) or _Tenant()
        reservoir = self._alike.get(alike) or _Alike()
        reservoir.seen = min(reservoir.seen + 1, REMEMBERED * self.most_alike)
        row = len(self._held)
        if len(reservoir.rows) >= self.most_alike:
            drawn = int(self._rng.integers(reservoir.seen))
            if drawn >= self.most_alike:
                return None
            row = reservoir.rows[drawn]
        elif row == self.capacity:
            row = self._oldest(own)
        if row < len(self._held):
            self._forget(row)
        self._put(row, _Held(self._age, tenant, alike))
        self._tenants[tenant], self._alike[alike] = own, reservoir
        own.count += 1
        reservoir.rows.append(row)
        return row

    def _oldest(self, own: _Tenant) -> int:
        """The oldest record that may go for one of this tenant's."""
        guaranteed = self.guaranteed(more=own.count == 0)
        if own.count >= guaranteed and (row := self._from(own.aside)) is not None:
            return row
        while (row := self._from(self._queue)) is not None:
            tenant = self._tenants[self._held[row].tenant]
            if tenant.count > guaranteed or (tenant is own and own.count >= guaranteed):
                return row
            tenant.aside.append((self._held[row].age, row))
            if len(tenant.aside) > 2 * tenant.count + SLACK:
                tenant.aside = self._current(tenant.aside)
        # All are within parts that were larger once: whoever has the most gives way.
        for tenant in sorted(self._tenants.values(), key=lambda one: -one.count):
            if (row := self._from(tenant.aside)) is not None:
                return row
        raise AssertionError("a full window has an oldest record")

    def _from(self, queue: deque[tuple[int, int]]) -> int | None:
        """The first row of the queue that still holds what was queued; it is taken out."""
        while queue:
            age, row = queue.popleft()
            if self._held[row].age == age:
                return row
        return None

    def _put(self, row: int, held: _Held) -> None:
        if row == len(self._held):
            self._held.append(held)
        else:
            self._held[row] = held
        self._age += 1
        self._queue.append((held.age, row))
        if len(self._queue) > 2 * self.capacity + SLACK:
            self._queue = self._current(self._queue)

    def _current(self, queue: deque[tuple[int, int]]) -> deque[tuple[int, int]]:
        """Without the places that replaced records left behind."""
        return deque((age, row) for age, row in queue if self._held[row].age == age)

    def _forget(self, row: int) -> None:
        gone = self._held[row]
        tenant, reservoir = self._tenants[gone.tenant], self._alike[gone.alike]
        tenant.count -= 1
        if not tenant.count:
            del self._tenants[gone.tenant]
        reservoir.rows.remove(row)
        if not reservoir.rows:
            del self._alike[gone.alike]
