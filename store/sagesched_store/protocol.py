"""What a store is, and how it fails."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from sagesched_store.record import Record, Space

Reason = Literal["locked", "schema", "unwritable", "disk-full", "damaged", "died", "timeout", "closed"]


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


class Store(Protocol):
    """Finished requests of one vector space, `rows` of them and at most a 64th more: the oldest are deleted.

    A store belongs to one thread. Every method raises StoreError; a record of another space is a ValueError.
    """

    @property
    def space(self) -> Space:
        """Of all its records."""

    @property
    def health(self) -> Health:
        """What was found when it was opened, and since."""

    def append(self, records: Sequence[Record]) -> None:
        """Returns once the records outlive this process, whatever ends it. A record already there is no second one."""

    def newest(self, limit: int) -> list[Record]:
        """The `limit` records that finished last, in order of time; of equal times in any order."""

    def count(self, tenant: str | None = None) -> int:
        """Records in all, or a tenant's."""

    def delete_tenant(self, tenant: str) -> int:
        """Forget a tenant; how many records it had. None of them is ever read again."""

    def close(self) -> None:
        """Give everything back. Nothing that was appended depends on it. A second call does nothing."""


def excess(count: int, rows: int) -> int:
    """How many of the oldest records are to go: none until there is a 64th too many, so that it is seldom."""
    over = count - rows
    return over if over > rows // 64 else 0


def check_space(records: Sequence[Record], space: Space) -> None:
    """Raises ValueError for a record of another vector space."""
    for record in records:
        if record.space != space:
            raise ValueError(f"record: its vector is of {record.space}, the store's are of {space}")
