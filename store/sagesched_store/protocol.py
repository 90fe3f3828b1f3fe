"""What a store is, and how it fails."""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from sagesched_store.record import Record, Space

Reason = Literal[
    "locked",
    "schema",
    "unwritable",
    "disk-full",
    "damaged",
    "died",
    "timeout",
    "closed",
    "unreachable",
    "no-collection",
    "refused",
    "rejected",
]


MAX_TENANTS = 100_000
"""Tenants that are counted; records of the rest are kept as long as there is room."""


class StoreError(Exception):
    """A store that cannot do what it was asked; `reason` is one of a few words, for metrics."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason: Reason = reason


class Health(NamedTuple):
    """What a store found when it was opened."""

    damaged_records: int = 0
    """Records that could not be read and were left out, as far as they can be counted."""
    set_aside: str = ""
    """Folder of what could not be opened at all; empty where there is none."""


class Changes(NamedTuple):
    """What others wrote to a shared store."""

    records: list[Record]
    until_s: float
    """Where the next look begins."""
    skipped: int = 0
    """Records beyond the limit; those that came are a fair sample of all."""


class Page(NamedTuple):
    """A part of a store, in the order of its own ids."""

    records: list[Record]
    after: str | None
    """Where the next page begins; None at the end."""


class Store(Protocol):
    """Finished requests of one vector space, `rows` of them and at most a 64th more (of a shared one: for each writer).

    What is too much is deleted as `surplus` says: the oldest, of the tenants with the most. A store belongs to one
    thread. Every method raises StoreError; a record of another space is a ValueError.
    """

    @property
    def space(self) -> Space:
        """Of all its records."""

    @property
    def health(self) -> Health:
        """What was found when it was opened, and since."""

    def append(self, records: Sequence[Record]) -> None:
        """Returns once the records outlive this process, whatever ends it. A record already there is no second one."""

    def newest(self, limit: int, tenant: str | None = None, models: Sequence[str] = ()) -> list[Record]:
        """The `limit` records that finished last, in order of time; of equal times in any order. Of a tenant alone, and
        of these models alone, where any are named."""

    def changes(self, since_s: float, limit: int) -> Changes:
        """What others wrote since about that time, each record once; nothing where nobody else writes."""

    def page(self, after: str | None, limit: int) -> Page:
        """Up to about `limit` records; None begins. What is there all the time is in one page, once."""

    def tenants(self) -> dict[str, int]:
        """Records by tenant, those with the most first."""

    def count(self, tenant: str | None = None) -> int:
        """Records in all, or a tenant's."""

    def delete_tenant(self, tenant: str) -> int:
        """Forget a tenant; how many records it had. None of them is ever read again."""

    def delete_before(self, finished_s: float) -> int:
        """Forget what finished before that time; how many records."""

    def close(self) -> None:
        """Give everything back. Nothing that was appended depends on it. A second call does nothing."""


def excess(count: int, rows: int) -> int:
    """How many records are to go: none until there is a 64th too many, so that it is seldom."""
    over = count - rows
    return over if over > rows // 64 else 0


def surplus(counts: Mapping[str, int], rows: int) -> dict[str, int]:
    """How many of its oldest each tenant is to lose, so that `rows` are left in all: whoever has the most loses first,
    so that no tenant can push out another's records but by needing no more than an equal share."""
    left = rows
    losing = deque(sorted(counts, key=lambda tenant: (counts[tenant], tenant)))
    while losing and counts[losing[0]] * len(losing) <= left:
        left -= counts[losing.popleft()]
    if not losing:
        return {}
    share, more = divmod(left, len(losing))
    kept = {tenant: share + (place < more) for place, tenant in enumerate(reversed(losing))}
    return {tenant: counts[tenant] - keeps for tenant, keeps in kept.items() if counts[tenant] > keeps}


def check_space(records: Sequence[Record], space: Space) -> None:
    """Raises ValueError for a record of another vector space."""
    for record in records:
        if record.space != space:
            raise ValueError(f"record: its vector is of {record.space}, the store's are of {space}")
