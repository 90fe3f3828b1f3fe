"""A rank as the int64 `priority` of an engine that orders by it, lower first (docs/modes.md).

Each priority class has a range of its own, and inside it the number rises with the policy's key: it is the leading
bits of the key itself, so that every finite key fits, in whatever unit, at a relative precision of 2^-38.
"""

import math
import struct

from sagesched.waiting import Rank

CLASS_BITS = 50
"""Bits of one class's range. Classes from -1000 to 1000 then stay within a ninth of the int64."""

_WORST = (1 << (CLASS_BITS - 1)) - 1
_LOW_63_BITS = (1 << 63) - 1


def engine_priority(rank: Rank) -> int:
    """The priority of a rank: monotone in (class, key). Ties are the engine's to break, which it does by arrival."""
    return class_priority(rank.priority) + _leading_bits(rank.key)


def class_priority(priority: int) -> int:
    """The middle of a class's range: what a request of this class has that was not ranked."""
    return priority << CLASS_BITS


def class_range(priority: int) -> tuple[int, int]:
    """The first and the last priority of a class."""
    middle = class_priority(priority)
    return middle - _WORST - 1, middle + _WORST


def _leading_bits(key: float) -> int:
    """The first 50 bits of a float64 as a signed number that orders as the float does; a key that is none goes last."""
    if math.isnan(key):
        return _WORST
    (bits,) = struct.unpack(">q", struct.pack(">d", key + 0.0))  # -0.0 + 0.0 is 0.0
    ordered: int = bits if bits >= 0 else bits ^ _LOW_63_BITS
    return ordered >> (64 - CLASS_BITS)
