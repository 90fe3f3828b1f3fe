"""The order inside the engine: one Ranking, told what the scheduler does with each request.

It knows vLLM's requests by what it reads of them, never by their type, and never decides whether a request exists: who
waits and runs is the scheduler's to say. Not thread-safe: the engine's step owns it.
"""

import logging
from collections.abc import Callable, Iterable

import numpy as np

from sagesched.gittins import Stopping
from sagesched.history import Vector
from sagesched.ranking import Ranking
from sagesched.request import Outcome
from sagesched.settings import Settings
from sagesched.ticket import Phase
from sagesched_vllm.arrivals import EngineRequest, read_request
from sagesched_vllm.counters import HINTS, PREEMPTED, REFRESHED, Counters
from sagesched_vllm.held import Held
from sagesched_vllm.log import LOGGER
from sagesched_vllm.running import Running

NO_EMBEDDING: Vector = np.ones(1, dtype=np.float32)
"""The engine has no embedder: every record of its history is as near as any other."""

_log = logging.getLogger(LOGGER)

OUT_OF_MEMORY = "memory"
"""The engine's own preemption; the others are those of core's rule."""
STOPPED = "FINISHED_STOPPED"
CUT = "FINISHED_LENGTH_CAPPED"


class Order:
    """See the module. `clock` gives Unix seconds, in which the sidecar tells arrivals."""

    def __init__(
        self, settings: Settings, clock: Callable[[], float], counters: Counters, *, step_tokens: int = 1
    ) -> None:
        self.ranking = Ranking(settings, stopping=Stopping.BOUNDARIES, dimensions=1)
        self.running = Running(step_tokens)
        self.weight = 0.0
        """Of all that is held."""
        self.ended_count = 0
        self.reason = OUT_OF_MEMORY
        """Why whoever is preempted now is."""
        self._held: dict[str, Held] = {}
        self._clock = clock
        self._counters = counters
        self._ranked = self.ranking.rankings
        self.now_s = clock()

    def __len__(self) -> int:
        return len(self._held)

    def tick(self) -> None:
        """A step begins, or somebody comes."""
        self.now_s = self._clock()

    def apply(self, settings: Settings) -> None:
        """Other settings; all that is held is ranked anew."""
        self.ranking.apply(settings)
        for held in self.running.members.values():
            self._advance(held)  # over a boundary that was none before
            self.running.set_due(held, self._bucket_tokens)
        self.running.all_moved()

    def held(self, request_id: str) -> Held | None:
        """A request's place, where it has one."""
        return self._held.get(request_id)

    def waits(self, request: EngineRequest) -> None:
        """It is in the queue: it came, was preempted, or goes on with more input."""
        self.tick()
        held = self._held.get(request.request_id)
        if held is not None and held.request is not request:  # its name is used again before its end was seen
            self.ended(held.request.request_id)
            held = None
        if held is None:
            self._came(request)
        elif held.ticket.phase is Phase.RUNNING:
            if request.status.name == "PREEMPTED":
                self._counters.add(PREEMPTED, self.reason)
            self._advance(held)
            self.ranking.requeue(request.request_id, self.now_s)
            self.running.remove(request.request_id)

    def started(self, request: EngineRequest) -> None:
        """It runs, or holds memory and will."""
        held = self._held.get(request.request_id)
        if held is None:
            self._came(request)
            held = self._held[request.request_id]
        if held.ticket.phase is Phase.WAITING:
            held.promoted = self.ranking.is_promoted(held.ticket, self.now_s)
            self.ranking.start(request.request_id, self.now_s)
        if request.request_id not in self.running:
            self.running.add(held, self._bucket_tokens)

    def stays(self, request_id: str) -> None:
        """It was taken out of the queue and could not start: until it is put back it takes no room from others."""
        self.running.remove(request_id)

    def put_back(self, request_id: str) -> None:
        """It was taken out of the queue in this step and could not start."""
        self.ranking.put_back(request_id, self.now_s)
        self.running.remove(request_id)

    def away(self, request_id: str) -> None:
        """It waits, but not in the queue."""
        self.ranking.start(request_id, self.now_s)

    def peek(self) -> str | None:
        """Who goes next."""
        ticket = self.ranking.peek(self.now_s)
        return None if ticket is None else ticket.request.id

    def ended(self, request_id: str) -> None:
        """The engine has done with it; history learns how long it was."""
        held = self._held.pop(request_id, None)
        if held is None:
            return
        self.running.remove(request_id)
        self.ended_count += 1
        self.weight -= held.ticket.request.weight
        status = held.request.status.name
        outcome = Outcome(output_tokens=held.request.num_output_tokens, censored=status != STOPPED)
        if status in (STOPPED, CUT):
            self.ranking.finish(request_id, outcome, self.now_s)
        else:
            self.ranking.drop(request_id, self.now_s)
        self.ranking.learn_late(held.ticket.request, NO_EMBEDDING, outcome)

    def sweep(self, alive: Iterable[str]) -> None:
        """Forget whatever the engine does not have any longer, however that came."""
        for request_id in self._held.keys() - set(alive):
            self.ended(request_id)

    def refresh(self) -> None:
        """A step begins: rank anew what has crossed a bucket boundary, predict anew what outlived its prediction."""
        for held in self.running.due():
            self._advance(held)
            self.running.set_due(held, self._bucket_tokens)

    def rank_now(self, held: Held) -> None:
        """Rank a running request by what it has generated by now, between two boundaries."""
        self.ranking.refresh(held.id, held.request.num_output_tokens)
        self._predict(held)
        self.running.moved(held)

    def sort(self, running: list[EngineRequest]) -> None:
        """The engine's list of what runs, the worst last."""
        if self._ranked != self.ranking.rankings:
            self._ranked = self.ranking.rankings
            self.running.all_moved()
        self.running.sort(running)

    @property
    def _bucket_tokens(self) -> int:
        return self.ranking.settings.scheduling.bucket_tokens

    def _came(self, request: EngineRequest) -> None:
        arrival = read_request(request, self.ranking.settings, self.now_s)
        ticket = self.ranking.admit(arrival.request, None, self.now_s, told=arrival.told)
        self._held[request.request_id] = Held(request, ticket)
        self.weight += ticket.request.weight
        self._counters.add(HINTS, arrival.result)
        if arrival.problem and self._counters.total(HINTS, "bad") == 1:
            _log.warning("SageSched: a hint that cannot be used (%s); only the first is logged", arrival.problem)

    def _advance(self, held: Held) -> None:
        """Tell the ranking how far it is."""
        if self.ranking.progress(held.id, held.request.num_output_tokens):
            self._counters.add(REFRESHED)
            self.running.moved(held)
        self._predict(held)

    def _predict(self, held: Held) -> None:
        held.predict()
        self.running.count(held)
