"""How long the engine's steps take, and by how much a token that is computed again lengthens one."""

from sagesched.preemption import Pace
from sagesched_vllm.room import Capacity

MEMORY = 0.98
MIN_SAMPLES = 20
"""Steps of each kind before they are believed."""
PREFILL_SHARE = 0.05
"""Of a step that a prompt's token takes, while that is not known: more than on any engine that was measured."""
PAUSE = 20.0
"""A step that took so many times the usual one was none: the engine had nothing to do between."""


class PaceMeter:
    """Told of each step as it begins; what lies between two of them is the time of the first."""

    def __init__(self) -> None:
        self._began_s: float | None = None
        self._prefilled = 0
        self._plain = _Mean()
        self._token = _Mean()

    def step(self, now_s: float) -> None:
        """A step begins."""
        began_s, self._began_s = self._began_s, now_s
        if began_s is None:
            return
        took_s = now_s - began_s
        usual_s = self._plain.value
        if self._plain.count >= MIN_SAMPLES and took_s > PAUSE * usual_s and not self._prefilled:
            return
        if not self._prefilled:
            self._plain.add(took_s)
        elif self._plain.count >= MIN_SAMPLES:
            self._token.add(max(0.0, took_s - usual_s), self._prefilled)

    def scheduled(self, tokens: int, requests: int) -> None:
        """What goes into the step: tokens beyond one of each request are those of prompts."""
        if requests:
            self._prefilled = max(0, tokens - requests)
        else:
            self._began_s = None

    def pace(self, capacity: Capacity, kv_tokens: float) -> Pace:
        """As known now; a step is a second while that is not known, which changes no decision."""
        step_s = self._plain.value if self._plain.count >= MIN_SAMPLES else 1.0
        token_s = self._token.value if self._token.count >= MIN_SAMPLES else PREFILL_SHARE * step_s
        return Pace(capacity.slots, kv_tokens, step_s or 1.0, token_s)


class _Mean:
    """A mean per unit in which older values count less."""

    def __init__(self) -> None:
        self.count = 0
        self._sum = 0.0
        self._units = 0.0

    @property
    def value(self) -> float:
        return self._sum / self._units if self._units else 0.0

    def add(self, value: float, units: float = 1.0) -> None:
        self.count += 1
        self._sum = self._sum * MEMORY + value
        self._units = self._units * MEMORY + units
