"""What our scheduler does before and after each step of the engine's own.

Everything here may fail: then that step is served first come, first served, the failure is counted, and the first of
its kind is logged with its trace. No failure reaches the engine.
"""

import logging
import time
from collections.abc import Callable, MutableMapping
from typing import Any, Protocol

from sagesched.settings import SettingsError
from sagesched.watchdog import Progress, Watchdog
from sagesched_vllm.counters import (
    FALLBACK,
    FALLBACK_STEPS,
    HELD_BACK,
    INVERSIONS,
    PREEMPTED,
    RELOADS,
    SETTINGS,
    Counters,
)
from sagesched_vllm.log import LOGGER
from sagesched_vllm.order import OUT_OF_MEMORY, Order
from sagesched_vllm.pace import PaceMeter
from sagesched_vllm.preempting import Memory, Preempting
from sagesched_vllm.queue import RankedQueue
from sagesched_vllm.room import Capacity, Room
from sagesched_vllm.settings_file import Loaded, Watch

MAX_KINDS = 64
"""Kinds of failures that are told apart."""

_log = logging.getLogger(LOGGER)


class Engine(Protocol):
    """What is read, and put in order, of vLLM's scheduler."""

    requests: dict[str, Any]
    running: list[Any]
    finished_req_ids: set[str]

    def preempt_for_order(self, request: Any) -> bool:
        """Take a running request's place; False where the engine cannot now."""


class Conductor:
    """See the module. `used_tokens`: KV tokens that are taken now."""

    def __init__(
        self,
        engine: Engine,
        watch: Watch,
        capacity: Capacity,
        used_tokens: Callable[[], int],
        memory: Memory,
        clock: Callable[[], float] = time.time,
        *,
        step_tokens: int = 1,
    ) -> None:
        self._engine = engine
        self._watch = watch
        self.counters = Counters()
        self.order = Order(watch.first.settings, clock, self.counters, step_tokens=step_tokens)
        self.room = Room(self.order, capacity, used_tokens)
        self.pace = PaceMeter()
        self.preempting = Preempting(self.order, self.room, memory, self.pace)
        self.queue = RankedQueue(self.order, self._fault)
        self.watchdog = Watchdog(watch.first.settings.preemption.watchdog_seconds)
        self._tokens = 0
        self._kinds: set[str] = set()
        self._use(watch.first)

    def before(self) -> None:
        """A step begins."""
        ordered = True
        try:
            self.order.tick()
            self.pace.step(self.order.now_s)
            self._settle()
            self._take_settings()
            ordered = self._look_after()
            if ordered:
                self._put_in_order()
        except Exception as error:
            ordered = False
            self._fault("step", error)
        self.queue.begin(ordered, self.room if ordered else None)

    def after(self, tokens: int, requests: int) -> None:
        """The engine's own step has ended, well or not, with so many tokens of so many requests to be computed."""
        started_early = self.queue.end()
        try:
            self._tokens += tokens
            self.pace.scheduled(tokens, requests)
            self.counters.add(INVERSIONS, count=started_early)
            if self.room.held_back:
                self.counters.add(HELD_BACK)
            for request in reversed(self._engine.running):
                if request.request_id in self.order.running:
                    break
                self.order.started(request)
        except Exception as error:
            self._fault("after", error)

    def tell(self, carrier: MutableMapping[str, int]) -> None:
        """Put what was counted on its way to the process that serves /metrics."""
        try:
            self.counters.put_into(carrier)
        except Exception as error:
            self._fault("metrics", error)

    def _put_in_order(self) -> None:
        self.order.refresh()
        self.order.sort(self._engine.running)
        self.room.begin()
        self.order.reason, victims = self.preempting.victims()
        try:
            for victim in victims:
                self._engine.preempt_for_order(victim)
        finally:
            self.order.reason = OUT_OF_MEMORY

    def _look_after(self) -> bool:
        """Whether the order may be used: not while it does harm."""
        ours = self.counters.total(PREEMPTED) - self.counters.total(PREEMPTED, OUT_OF_MEMORY)
        progress = Progress(self._tokens, self.order.ended_count, ours)
        if self.watchdog.look(self.order.now_s, len(self.order), progress):
            trouble = self.watchdog.trouble
            self.counters.states[FALLBACK,] = int(trouble is not None)
            if trouble:
                _log.warning("SageSched: %s; first come, first served from now on", trouble)
            else:
                _log.warning("SageSched: there was progress; the order is back")
        if self.watchdog.trouble:
            self.counters.add(FALLBACK_STEPS, self.watchdog.trouble)
        return self.watchdog.trouble is None

    def _settle(self) -> None:
        """Who has ended since the last step."""
        for request_id in self._engine.finished_req_ids:
            held = self.order.held(request_id)
            if held is not None and held.request.is_finished():
                self.order.ended(request_id)
        if len(self.order) > len(self._engine.requests):
            self.order.sweep(self._engine.requests)

    def _take_settings(self) -> None:
        while (news := self._watch.take()) is not None:
            if isinstance(news, SettingsError):
                self.counters.add(RELOADS, "refused")
                _log.warning("SageSched: settings not taken over; the last good ones stay: %s", news)
                continue
            self.order.apply(news.settings)
            self.counters.add(RELOADS, "applied")
            self._use(news)

    def _use(self, loaded: Loaded) -> None:
        self.counters.states = {
            (SETTINGS, loaded.digest, loaded.revision): 1,
            (FALLBACK,): self.counters.states.get((FALLBACK,), 0),
        }
        self.watchdog.window_s = loaded.settings.preemption.watchdog_seconds
        policy = loaded.settings.scheduling.policy
        _log.info("SageSched: policy %s, settings %s (%s)", policy, loaded.digest, loaded.revision)

    def _fault(self, where: str, error: Exception) -> None:
        self.counters.add(FALLBACK_STEPS, "error")
        kind = f"{where}:{type(error).__name__}"
        if kind not in self._kinds and len(self._kinds) < MAX_KINDS:
            self._kinds.add(kind)
            _log.error("SageSched: %s failed; served first come, first served for this step", where, exc_info=error)
