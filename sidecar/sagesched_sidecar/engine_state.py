"""What an engine's metrics say, and what they teach about its slots; no I/O."""

import math
from collections.abc import Iterator
from typing import NamedTuple

FIRST_PATIENCE_LOOKS = 10
MAX_PATIENCE_LOOKS = 1280


class EngineState(NamedTuple):
    """What the engine's metrics say; None where they do not say it."""

    running: int | None = None
    waiting: int | None = None
    kv_tokens: int | None = None
    block_tokens: int | None = None
    """Tokens of one block of the KV cache: a request holds whole ones."""


def read_metrics(text: str) -> EngineState:
    """vLLM's metrics in the Prometheus text format; several engines in one process are added up."""
    running = [value for _, value in _samples(text, "vllm:num_requests_running")]
    waiting = [value for _, value in _samples(text, "vllm:num_requests_waiting")]
    caches = [labels for labels, _ in _samples(text, "vllm:cache_config_info")]
    known = [tokens for tokens in map(_kv_tokens, caches) if tokens]
    blocks = [size for labels in caches if (size := _whole(labels.get("block_size")))]
    return EngineState(
        running=int(sum(running)) if running else None,
        waiting=int(sum(waiting)) if waiting else None,
        kv_tokens=sum(known) if known else None,
        block_tokens=max(blocks, default=None),
    )


def _samples(text: str, name: str) -> Iterator[tuple[dict[str, str], float]]:
    for line in text.splitlines():
        if not line.startswith(name):
            continue
        rest = line[len(name) :]
        labels, closed, value = rest.rpartition("}")
        if rest[:1] == "{" and closed:
            pairs = (pair.partition("=") for pair in labels[1:].split('",'))
            named = {key.strip(): quoted.strip().strip('"') for key, _, quoted in pairs}
        elif rest[:1] == " ":
            named, value = {}, rest
        else:
            continue
        number = _number(value)
        if number is not None:
            yield named, number


def _number(text: str) -> float | None:
    """The sample's value; None where it is none, or not finite."""
    try:
        number = float(text.split()[0])
    except (ValueError, IndexError):
        return None
    return number if math.isfinite(number) else None


def _kv_tokens(labels: dict[str, str]) -> int | None:
    size = _whole(labels.get("kv_cache_size_tokens"))
    blocks, block_size = _whole(labels.get("num_gpu_blocks")), _whole(labels.get("block_size"))
    return size or (blocks * block_size if blocks and block_size else None)


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


class SlotLearner:
    """The engine's slots: the largest running count seen while requests wait in the engine.

    vLLM publishes its usage of slots and not their number. A count seen at an unlucky moment (a long prefill, a full KV
    cache) may be too small, and a gate that keeps to it would never see a larger one; so when requests wait in the
    gate, all slots are taken and none waits in the engine, a few more are tried, more rarely each time that they only
    queue in the engine.
    """

    def __init__(self) -> None:
        self.slots: int | None = None
        self._most_running = 0
        self._looks_full = 0
        self._looks_wanting = 0
        self._patience = FIRST_PATIENCE_LOOKS

    def see(self, state: EngineState, *, gate_waiting: int, gate_running: int) -> None:
        """One look at the engine and the gate."""
        if not state.running or state.waiting is None:
            return
        if state.waiting:
            self._looks_full += 1
            if self._looks_full >= 2:
                self._settle(state.running)
            return
        self._looks_full = 0
        if self.slots is None:
            return
        if state.running > self._most_running:
            self._most_running, self._patience = state.running, FIRST_PATIENCE_LOOKS
        self._looks_wanting += gate_waiting > 0 and gate_running >= self.slots
        if self._looks_wanting >= self._patience:
            self._looks_wanting = 0
            self.slots += max(1, self.slots // 4)

    def _settle(self, running: int) -> None:
        """Requests wait in the engine for the second time in a row: it is full."""
        if self.slots is not None and self.slots > self._most_running:
            self._patience = min(2 * self._patience, MAX_PATIENCE_LOOKS)
        self._looks_wanting = 0
        self._most_running = max(self._most_running, running)
        self.slots = self._most_running
