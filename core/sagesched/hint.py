"""What the sidecar tells a scheduler inside the engine about one request: flat values in the body's `vllm_xargs`.

The engine takes text, numbers and flat lists of them there, nothing nested and no null, so each part of a hint has a
member of its own, all called `sagesched_...`, and `sagesched_v` is the version of them all (docs/modes.md).
"""

import math
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from sagesched.lengths import LengthDistribution
from sagesched.request import Request

VERSION = 1
PREFIX = "sagesched_"
MAX_ATOMS = 32
MAX_CLASS_CHARACTERS = 63

Value = str | int | float | list[str | int | float]


class Hint(msgspec.Struct, frozen=True, kw_only=True):
    """One request's prediction and place. Raises ValueError, naming the field, for what no hint may hold."""

    lengths: tuple[float, ...]
    """Output tokens, one of at most 32 atoms each: at least 1, ascending."""
    weights: tuple[float, ...]
    """Of each atom: positive; they need not sum to 1."""
    class_name: str = "default"
    priority: int = 0
    """Of its class: lower goes first."""
    weight: float = 1.0
    """Inside its class."""
    arrival_s: float = 0.0
    """When the sidecar had it, in Unix seconds; 0: not told."""

    def __post_init__(self) -> None:
        _check(1 <= len(self.lengths) <= MAX_ATOMS, "lengths", f"needs 1 to {MAX_ATOMS} atoms")
        _check(len(self.weights) == len(self.lengths), "weights", "needs one for each length")
        _check(all(map(math.isfinite, self.lengths)) and self.lengths[0] >= 1, "lengths", "must be at least 1")
        _check(all(a < b for a, b in zip(self.lengths, self.lengths[1:], strict=False)), "lengths", "must ascend")
        _check(all(0 < w <= 1e9 for w in self.weights), "weights", "must be positive")
        _check(
            0 < len(self.class_name) <= MAX_CLASS_CHARACTERS, "class", f"needs 1 to {MAX_CLASS_CHARACTERS} characters"
        )
        _check(-1000 <= self.priority <= 1000, "priority", "must be -1000 to 1000")
        _check(0 < self.weight <= 1000, "weight", "must be above 0, at most 1000")
        _check(math.isfinite(self.arrival_s), "arrival", "must be a number of seconds")

    @classmethod
    def of(cls, request: Request, predicted: LengthDistribution, arrival_s: float) -> "Hint":
        """The hint of a request; `arrival_s` in Unix seconds. Atoms beyond 32 are joined, and lengths are kept to a
        tenth of a token, weights to six digits: a hint is to be read by a scheduler and stays short on the wire."""
        atoms = predicted.compress(MAX_ATOMS)
        joined: dict[float, float] = {}
        for tokens, weight in zip(atoms.tokens.tolist(), atoms.weights.tolist(), strict=True):
            length = round(tokens, 1)
            joined[length] = joined.get(length, 0.0) + weight
        return cls(
            lengths=tuple(joined),
            weights=tuple(float(f"{weight:.6g}") for weight in joined.values()),
            class_name=request.class_name,
            priority=request.priority,
            weight=request.weight,
            arrival_s=arrival_s,
        )

    def distribution(self, max_tokens: int | None = None) -> LengthDistribution:
        """The predicted output length, cut at the request's own cap."""
        atoms = LengthDistribution.of_atoms(np.array(self.lengths), np.array(self.weights))
        return atoms.truncate(max_tokens)


class BadHint(msgspec.Struct, frozen=True):
    """A hint that cannot be used, and why: the request has no prediction then, and is served all the same."""

    reason: str


def encode(hint: Hint) -> dict[str, Value]:
    """The members to put into `vllm_xargs`."""
    return {
        "sagesched_v": VERSION,
        "sagesched_lengths": list(hint.lengths),
        "sagesched_weights": list(hint.weights),
        "sagesched_class": hint.class_name,
        "sagesched_priority": hint.priority,
        "sagesched_weight": hint.weight,
        "sagesched_arrival": hint.arrival_s,
    }


def decode(arguments: object) -> Hint | BadHint | None:
    """The hint among an engine request's extra arguments, None where there is none. Never raises, whatever it is
    given; members that this version does not know are left alone."""
    if not isinstance(arguments, Mapping) or "sagesched_v" not in arguments:
        return None
    version = arguments["sagesched_v"]
    if isinstance(version, bool) or version != VERSION:
        return BadHint(f"version: this scheduler reads {VERSION}")
    try:
        return Hint(
            lengths=_numbers(arguments, "lengths"),
            weights=_numbers(arguments, "weights"),
            class_name=_text(arguments, "class"),
            priority=int(_number(arguments, "priority")),
            weight=_number(arguments, "weight"),
            arrival_s=_number(arguments, "arrival"),
        )
    except (ValueError, OverflowError) as error:
        return BadHint(str(error))


def _check(holds: bool, field: str, fix: str) -> None:
    if not holds:
        raise ValueError(f"{field}: {fix}")


def _numbers(arguments: Mapping[str, Any], field: str) -> tuple[float, ...]:
    values = arguments.get(PREFIX + field)
    _check(isinstance(values, list | tuple) and 1 <= len(values) <= MAX_ATOMS, field, f"needs 1 to {MAX_ATOMS} numbers")
    assert isinstance(values, list | tuple)
    return tuple(_as_number(value, field) for value in values)


def _number(arguments: Mapping[str, Any], field: str) -> float:
    return _as_number(arguments.get(PREFIX + field), field)


def _as_number(value: object, field: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{field}: must be a number")
    return float(value)


def _text(arguments: Mapping[str, Any], field: str) -> str:
    value = arguments.get(PREFIX + field)
    if not isinstance(value, str):
        raise ValueError(f"{field}: must be text")
    return value
