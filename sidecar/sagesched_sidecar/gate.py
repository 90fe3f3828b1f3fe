"""The gate: an ordered queue in front of the engine, and the capacity behind it.

One event loop owns it. A request enters, waits for its turn, and leaves exactly once; whatever ends it, its place is
free in the same turn of the loop, and the next one starts.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Literal, Protocol

from sagesched.history import Vector
from sagesched.kv import predicted_peak_tokens
from sagesched.ranking import Ranking
from sagesched.request import Outcome, Request
from sagesched.scoreboard import Finished
from sagesched.settings import Engine, Queue, Settings
from sagesched.ticket import Ticket
from sagesched_sidecar.comparing import Comparing

UNKNOWN_SLOTS = 256
"""Requests sent at once while the engine's slots are neither given nor learnt: vLLM's default max_num_seqs."""

REPREDICTED_AT_ONCE = 4
"""Predictions in a turn of the loop where other settings make them due: about a millisecond each."""

SPREADS_KEPT = 0.5
"""Standard deviations of all KV tokens to come that stay free. A preemption costs some tokens computed twice, free room
costs requests that could run: with 1.0 the engine preempts next to never and runs fewer."""
MAX_RETRY_AFTER_S = 60

Entry = Literal["room", "ranked", "all"]
"""Who may go to the engine: what there is room for; all that the queue's bounds allow, each with its rank; or all."""

Embed = Callable[[], Awaitable[Vector | None]]
"""Gives a request's embedding, or None where there is none."""


class Refused(Exception):
    """The gate does not take the request, or no longer: why, the HTTP status, and when to try again."""

    def __init__(self, reason: str, status: int, retry_after_s: int) -> None:
        what = "the request waited too long or its turn will not come" if status == 503 else "the queue is full"
        super().__init__(f"{what} ({reason})")
        self.reason = reason
        self.status = status
        self.retry_after_s = retry_after_s


class Observer(Protocol):
    """Who counts what the gate does."""

    def waited(self, ticket: Ticket, outcome: str, seconds: float) -> None:
        """A request stopped waiting: `granted`, `left`, or the reason of its refusal."""

    def promoted(self) -> None:
        """A request went next by the starvation bound alone."""

    def troubled(self, cause: str) -> None:
        """A prediction failed; the request has a neutral rank."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The gate at one moment."""

    waiting: int
    waiting_bytes: int
    waiting_by_class: dict[str, int]
    oldest_s: float
    running: int
    slots: int | None
    kv_tokens: int | None
    predicted_waiting_tokens: float
    """Prompts and predicted outputs of what waits, here or in an engine that was sent more than it has slots for."""
    predicted_waiting_s: float
    """About how long the engine needs for the outputs among them; 0 while its pace is not known."""


class Place:
    """A request's place in the gate. The first of finish, drop and fail ends it; later ones do nothing."""

    __slots__ = ("_gate", "body_bytes", "ended", "granted", "predicted_tokens", "spread_tokens", "ticket", "unlearnt")

    def __init__(self, gate: "Gate", ticket: Ticket, body_bytes: int) -> None:
        self._gate = gate
        self.ticket = ticket
        self.body_bytes = body_bytes
        self.granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.predict()
        self.ended = False
        self.unlearnt: Outcome | None = None
        """How it was answered, where its embedding had not come by then."""

    @property
    def id(self) -> str:
        """The request's id."""
        return self.ticket.request.id

    def predict(self) -> None:
        """Its output tokens from what is believed now: their mean, and their standard deviation."""
        belief = self.ticket.belief
        self.predicted_tokens = self.ticket.generated_tokens + belief.mean_tokens()
        self.spread_tokens = belief.spread_tokens()

    def began(self) -> None:
        """Its first output has come."""
        if not self.ended and self.ticket.sent_ahead:
            self._gate.ranking.began(self.id, self._gate.now_s)

    def progress(self, generated_tokens: int) -> None:
        """It has that many output tokens of one choice."""
        if self.ended:
            return
        refreshed = self._gate.ranking.progress(self.id, generated_tokens)
        if refreshed or generated_tokens >= self.predicted_tokens:  # outlived: what is to come never reads as nothing
            self.predict()

    def finish(self, outcome: Outcome) -> Finished | None:
        """It was answered; history learns."""
        return self._gate.finish(self, outcome)

    def drop(self, generated_tokens: int = 0) -> None:
        """Its client left; tokens generated so far are a censored sample."""
        self._gate.drop(self, generated_tokens)

    def fail(self) -> None:
        """The engine failed; nothing is learnt."""
        self._gate.drop(self, 0)

    def kv_tokens(self, block_tokens: int = 0) -> tuple[float, float]:
        """KV cache tokens held now, and still to come as predicted. Each choice ends within a block of its own, half of
        which is empty on average."""
        request, generated = self.ticket.request, self.ticket.generated_tokens
        choices = request.features.choices
        held = request.prompt_tokens + choices * (generated + block_tokens / 2)
        return held, choices * max(1.0, self.predicted_tokens - generated)

    def kv_variance(self) -> float:
        """Of the KV cache tokens still to come; its choices are one prompt's and vary together."""
        return float((self.ticket.request.features.choices * self.spread_tokens) ** 2)


class Gate:
    """See the module. `clock` gives seconds, always rising."""

    def __init__(
        self, ranking: Ranking, queue: Queue, engine: Engine, *, clock: Callable[[], float], observer: Observer
    ) -> None:
        self.ranking = ranking
        self.comparing = Comparing(ranking)
        self._queue = queue
        self._engine = engine
        self._clock = clock
        self._observer = observer
        self._known_slots = engine.known_slots
        self._learnt: tuple[int | None, int | None] = None, None
        self._block_tokens = 0
        self._places: dict[str, Place] = {}
        self._running: dict[str, Place] = {}
        self._waiting_bytes = 0
        self._sent_bytes = 0
        self._entry: Entry = "room"
        self._closed: tuple[str, int] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._repredicting: asyncio.Handle | None = None

    @property
    def entry(self) -> Entry:
        """Who may go to the engine."""
        return self._entry

    def set_entry(self, entry: Entry) -> None:
        """Change who may go to the engine. What was let in stays."""
        self._entry = entry
        self.dispatch()

    async def enter(
        self, request: Request, embedding: Vector | None, body_bytes: int, embed: Embed | None = None
    ) -> Place:
        """Wait for a turn. Raises Refused when there is none to be had; being cancelled frees the place.

        A request that need not wait goes at once, whatever is known of it; only one that waits is worth the time of
        `embed`, which then refines its rank. The others can be refined later, while the engine works.
        """
        place = self._admit(request, embedding, body_bytes)
        try:
            if embed is not None and not place.granted.done():
                self.refine(place, await embed())
            await place.granted
        except BaseException:
            if place.granted.done() and not place.granted.cancelled():
                place.granted.exception()  # a refusal in the same turn: nobody is left to hear it
            self._remove(place, 0, "left")
            raise
        return place

    def let_in(self, request: Request, body_bytes: int) -> Place:
        """The place of a request that has gone to the engine already. Raises Refused where the gate is closed."""
        place = self._admit(request, None, body_bytes)
        if not place.granted.done():  # the gate keeps order again since a moment ago
            self.drop(place, 0)
            raise Refused("mode-changed", 503, 1)
        return place

    def refine(self, place: Place, embedding: Vector | None) -> None:
        """Predict a request anew by its embedding. One that was answered meanwhile is learnt from, nothing more."""
        if embedding is None:
            return
        if place.ended:
            if place.unlearnt is not None:
                self.ranking.learn_late(place.ticket.request, embedding, place.unlearnt)
            return
        ticket = self.ranking.refine(place.id, embedding)
        self._tell_trouble(ticket)
        place.predict()
        self.dispatch()

    def _admit(self, request: Request, embedding: Vector | None, body_bytes: int) -> Place:
        self._refuse_if_full(body_bytes)
        now_s = self._clock()
        ticket = self.ranking.admit(request, embedding, now_s)
        self.comparing.arrived(ticket, now_s, self.slots and self.slots + self._engine.extra_slots)
        self._tell_trouble(ticket)
        place = Place(self, ticket, body_bytes)
        self._places[place.id] = place
        self._waiting_bytes += body_bytes
        self._set_timer()
        self.dispatch()
        return place

    def _tell_trouble(self, ticket: Ticket) -> None:
        if ticket.trouble:
            self._observer.troubled(ticket.trouble)

    def dispatch(self) -> None:
        """Start whoever goes next, as long as there is room."""
        now_s = self._clock()
        while (ticket := self.ranking.peek(now_s)) is not None:
            place = self._places[ticket.request.id]
            if place.granted.done():  # cancelled in this turn of the loop; its task has not run yet
                self._end(place, 0, "left")
                continue
            if not self._has_room_for(place):
                return
            if self.ranking.is_promoted(ticket, now_s):
                self._observer.promoted()
            self.ranking.start(place.id, now_s, ahead=self._entry != "room")
            self.comparing.started(ticket)
            self._running[place.id] = place
            self._sent_bytes += place.body_bytes
            self._stop_waiting(place, "granted")
            self._note_backlog(now_s)
            place.granted.set_result(None)

    def finish(self, place: Place, outcome: Outcome) -> Finished | None:
        """See Place.finish."""
        if place.ended:
            return None
        self._forget(place)
        if place.ticket.embedding is None and not place.ticket.trouble:
            place.unlearnt = outcome
        now_s = self._clock()
        self.comparing.ended(place.ticket, now_s)
        finished = self.ranking.finish(place.id, outcome, now_s)
        self.dispatch()
        return finished

    def drop(self, place: Place, generated_tokens: int) -> None:
        """See Place.drop and Place.fail."""
        self._remove(place, generated_tokens, "left")

    def set_capacity(self, slots: int | None, kv_tokens: int | None, block_tokens: int | None = None) -> None:
        """What the engine's metrics taught. What the settings state outweighs it."""
        known_slots, known_kv_tokens = self._learnt
        self._learnt = slots or known_slots, kv_tokens or known_kv_tokens
        self._block_tokens = block_tokens or self._block_tokens
        self._note_backlog(self._clock())
        self.dispatch()

    def apply(self, settings: Settings) -> None:
        """Other settings from now on: what waits is ranked anew, and starts where there is more room now. What waits
        stays, also beyond a smaller queue; what is too old by a smaller age is refused."""
        self._queue, self._engine = settings.queue, settings.engine
        self._known_slots = settings.engine.known_slots
        self.ranking.apply(settings)
        self.comparing.apply(settings.scheduling)
        self._repredict()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._set_timer()
        self.dispatch()

    @property
    def slots(self) -> int | None:
        """The engine's slots as known now."""
        return self._known_slots or self._learnt[0]

    @property
    def _kv_tokens(self) -> int | None:
        return self._engine.kv_tokens or self._learnt[1]

    def _repredict(self) -> None:
        """Predict anew what is due, a few in each turn of the loop, so that the streams go on meanwhile."""
        if self._repredicting is not None or not self.ranking.due_count:
            return

        def some() -> None:
            self._repredicting = None
            for ticket in self.ranking.repredict(REPREDICTED_AT_ONCE):
                self._tell_trouble(ticket)
                self._places[ticket.request.id].predict()
            self.dispatch()
            self._repredict()

        self._repredicting = asyncio.get_running_loop().call_soon(some)

    def close(self, reason: str, retry_after_s: int = 1) -> None:
        """Refuse what comes from now on with 503; what waits and runs goes on."""
        self._closed = reason, retry_after_s

    def reopen(self) -> None:
        """Take requests again."""
        self._closed = None

    def refuse_waiting(self, reason: str, retry_after_s: int = 1) -> None:
        """Refuse all that wait with 503. None of them starts instead, though a smaller one might fit now."""
        for place in list(self._places.values()):
            if place.id not in self._running:
                self._refuse(place, Refused(reason, 503, retry_after_s))

    @property
    def now_s(self) -> float:
        """Now, in the seconds in which arrivals are told."""
        return self._clock()

    def snapshot(self) -> Snapshot:
        """Queue and capacity now."""
        waiting = [place for place in self._places.values() if place.id not in self._running]
        by_class = Counter(place.ticket.request.class_name for place in waiting)
        work = self._work_of(waiting)
        oldest = self.ranking.oldest()
        return Snapshot(
            waiting=len(waiting),
            waiting_bytes=self._waiting_bytes,
            waiting_by_class=dict(by_class),
            oldest_s=0.0 if oldest is None else self._clock() - oldest.request.arrival_s,
            running=len(self._running),
            slots=self.slots,
            kv_tokens=self._kv_tokens,
            predicted_waiting_tokens=work[0] + work[1],
            predicted_waiting_s=work[1] * self.ranking.unit.token_s / (self.slots or UNKNOWN_SLOTS),
        )

    def _work_of(self, waiting: list[Place]) -> tuple[float, float]:
        """Tokens of prompts and tokens still to come of what waits here and in the engine.

        Who waits in the engine is known only by having no output yet; of these, as many count as there are too many.
        """
        parts = [place.kv_tokens() for place in waiting]
        silent = [place.kv_tokens() for place in self._running.values() if place.ticket.sent_ahead]
        share = min(1.0, self._behind() / len(silent)) if silent else 0.0
        here, behind = ([sum(column) for column in zip(*of, strict=True)] or [0.0, 0.0] for of in (parts, silent))
        return here[0] + share * behind[0], here[1] + share * behind[1]

    def _behind(self) -> int:
        """Requests in the engine beyond its slots: they wait there."""
        return max(0, len(self._running) - (self.slots or UNKNOWN_SLOTS) - self._engine.extra_slots)

    def _note_backlog(self, now_s: float) -> None:
        self.ranking.backlog(self._behind() > 0, now_s)

    def _refuse_if_full(self, body_bytes: int) -> None:
        if self._closed is not None:
            reason, retry_after_s = self._closed
            raise Refused(reason, 503, retry_after_s)
        if self._entry == "all":
            return
        if self.ranking.waiting_count + self._behind() >= self._queue.max_requests:
            raise Refused("queue-full", 429, self._retry_after_s())
        sent_bytes = 0 if self._entry == "room" else self._sent_bytes
        if self._waiting_bytes + sent_bytes + body_bytes > self._queue.max_bytes:
            raise Refused("queue-bytes-full", 429, self._retry_after_s())

    def _retry_after_s(self) -> int:
        """About when a tenth of what waits will have started."""
        waiting = self.ranking.waiting_count + self._behind()
        expected_s = self.ranking.unit.mean_service_s * waiting / 10
        return max(1, min(MAX_RETRY_AFTER_S, round(expected_s)))

    def _has_free_slot(self) -> bool:
        return len(self._running) < (self.slots or UNKNOWN_SLOTS) + self._engine.extra_slots

    def _has_room_for(self, place: Place) -> bool:
        """A free slot, and a predicted KV peak that fits (Past-Future) beside part of the spread of all that is to
        come. A request alone always starts: whether it fits at all is for the engine to say."""
        if self._entry != "room" or not self._running:
            return True
        if not self._has_free_slot():
            return False
        if self._kv_tokens is None:
            return True
        places = (*self._running.values(), place)
        spread = math.sqrt(sum(other.kv_variance() for other in places))
        room = self._kv_tokens * (1 - self._engine.kv_reserve) - SPREADS_KEPT * spread
        uses = [other.kv_tokens(self._block_tokens) for other in places]
        if sum(map(sum, uses)) <= room:
            return True
        return predicted_peak_tokens([held for held, _ in uses], [ahead for _, ahead in uses]) <= room

    def _stop_waiting(self, place: Place, outcome: str) -> None:
        self._waiting_bytes -= place.body_bytes
        self._observer.waited(place.ticket, outcome, self._clock() - place.ticket.request.arrival_s)

    def _forget(self, place: Place) -> None:
        place.ended = True
        del self._places[place.id]
        if self._running.pop(place.id, None) is not None:
            self._sent_bytes -= place.body_bytes
            self._note_backlog(self._clock())

    def _remove(self, place: Place, generated_tokens: int, outcome: str) -> None:
        """End a place, and start whoever has room now."""
        if not place.ended:
            self._end(place, generated_tokens, outcome)
            self.dispatch()

    def _end(self, place: Place, generated_tokens: int, outcome: str) -> None:
        if place.id not in self._running:
            self._stop_waiting(place, outcome)
        self._forget(place)
        self.comparing.ended(place.ticket, None)
        self.ranking.drop(place.id, self._clock(), generated_tokens=generated_tokens)

    def _refuse(self, place: Place, refusal: Refused) -> None:
        left = place.granted.done()  # cancelled in this turn of the loop
        if not left:
            place.granted.set_exception(refusal)
        self._end(place, 0, "left" if left else refusal.reason)

    def _set_timer(self) -> None:
        """One timer, for the moment at which the oldest request is too old."""
        oldest = self.ranking.oldest()
        if self._timer is None and oldest is not None:
            due_s = oldest.request.arrival_s + self._queue.max_age_seconds - self._clock()
            self._timer = asyncio.get_running_loop().call_later(max(0.001, due_s), self._expire)

    def _expire(self) -> None:
        self._timer = None
        limit_s = self._clock() - self._queue.max_age_seconds
        while (oldest := self.ranking.oldest()) is not None and oldest.request.arrival_s <= limit_s:
            self._refuse(self._places[oldest.request.id], Refused("queue-age", 503, self._retry_after_s()))
        self.dispatch()
        self._set_timer()
