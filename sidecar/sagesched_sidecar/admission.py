"""One gate, two doors: the way of a request from a door, HTTP or gRPC, to its end, the same whichever door it came by.

A door decodes the request, opens a visit for it and says what the engine did. The visit predicts (when: foresight.py),
waits for a turn, follows, lets history learn, and leaves counts, a record and a line in the log.
"""

import logging
from collections.abc import Awaitable, Callable

from sagesched.history import Vector
from sagesched.predictor import Prediction
from sagesched.request import Outcome, Request
from sagesched_sidecar.foresight import Foresight
from sagesched_sidecar.gate import Gate, Place
from sagesched_sidecar.journal import Journal, MemoryJournal
from sagesched_sidecar.logs import LOGGED_MODEL_CHARACTERS
from sagesched_sidecar.prompts import PromptEmbedder, TokenEstimate
from sagesched_sidecar.records import Ended, How, Record, Records
from sagesched_sidecar.telemetry import Telemetry

_log = logging.getLogger(__name__)


class Admission:
    """What visits share."""

    def __init__(
        self,
        gate: Gate,
        embedder: PromptEmbedder,
        telemetry: Telemetry,
        records: Records,
        *,
        clock: Callable[[], float],
        journal: Journal | None = None,
    ) -> None:
        self.gate = gate
        self.embedder = embedder
        self.telemetry = telemetry
        self.records = records
        self.clock = clock
        self.estimate = TokenEstimate()
        self._journal = journal or MemoryJournal()
        self._written: Awaitable[None] | None = None
        gate.ranking.learnt = self._write

    def visit(
        self, request: Request, text: str | None, *, body_bytes: int, door: str, embedding: Vector | None = None
    ) -> "Visit":
        """A request at a door. `text`: its prompt, None where it was not understood; `embedding`: where the client
        sent one, instead of the prompt's; `body_bytes`: what it holds of the queue's memory."""
        return Visit(self, request, text, body_bytes, door, embedding)

    def predict(self, request: Request, embedding: Vector | None) -> tuple[Prediction, str | None]:
        """What would be believed of a request; nothing is admitted. See Ranking.predict."""
        return self.gate.ranking.predict(request, embedding)

    async def teach(self, request: Request, text: str | None, embedding: Vector | None, outcome: Outcome) -> bool:
        """History learns from a request that was served elsewhere. Whether it did; the record would survive a crash."""
        if embedding is None:
            embedding = None if text is None else await self.embedder.embed(text)
        if embedding is None:
            return False
        self.take_written()
        self.gate.ranking.learn_late(request, embedding, outcome)
        return await _survives(self.take_written())

    def take_written(self) -> Awaitable[None] | None:
        """The write that the last record learnt has begun, once."""
        written, self._written = self._written, None
        return written

    def _write(self, request: Request, embedding: Vector, outcome: Outcome) -> None:
        try:
            self._written = self._journal.record(request, embedding, outcome)
        except Exception as error:  # a journal that fails costs no request
            self.telemetry.troubled("journal-error")
            _log.warning("a record was not written", extra={"problem": type(error).__name__})


class Visit:
    """One request. `enter` comes first; the first of finish, leave and fail ends it, and later ones do nothing."""

    def __init__(
        self,
        admission: Admission,
        request: Request,
        text: str | None,
        body_bytes: int,
        door: str,
        embedding: Vector | None,
    ) -> None:
        self._admission = admission
        self.request = request
        self._text = text
        self._body_bytes = body_bytes
        self._door = door
        self._given = embedding
        inline = embedding is not None or admission.embedder.inline
        self._foresight = Foresight(self, self._embed, admission.clock, inline=inline)
        self._place: Place | None = None
        self._ended = False
        self.written: Awaitable[None] | None = None
        """The write of what history learnt from it, where it learnt anything."""

    @property
    def has_turn(self) -> bool:
        """Whether it has had its turn."""
        return self._place is not None

    @property
    def place(self) -> Place:
        """Its place in the gate, from its turn on."""
        assert self._place is not None, "enter comes first"
        return self._place

    async def enter(self) -> None:
        """Wait for a turn. Raises gate.Refused when there is none to be had; being cancelled frees the place."""
        shared = self._admission
        shared.telemetry.overhead.observe(shared.clock() - self.request.arrival_s)
        embedding = None
        if shared.gate.entry == "ranked":  # the rank travels with the request
            embedding = await self._foresight.embedding()
        elif shared.gate.ranking.waiting_count:
            embedding = await self._foresight.at_once()
        self._place = await shared.gate.enter(self.request, embedding, self._body_bytes, self._foresight.embedding)

    def watch(self) -> None:
        """Follow a request that has gone to the engine already. Raises gate.Refused where nothing is let in."""
        self._place = self._admission.gate.let_in(self.request, self._body_bytes)

    def begun(self) -> None:
        """The engine works on it: predict it now, if that was not done yet, as soon as nothing is more urgent."""
        self._foresight.refine_soon(self.place)

    def began(self) -> None:
        """Its first output has come."""
        self.place.began()

    async def settle(self) -> None:
        """Before it finishes: predict it, if that was not done yet, so that it can be learnt from."""
        await self._foresight.settle(self.place)

    def progress(self, generated_tokens: int) -> None:
        """It has that many output tokens of one choice."""
        self.place.progress(generated_tokens)

    def finish(self, outcome: Outcome) -> None:
        """It was answered; history learns, and the next request starts."""
        if self._is_first():
            self._admission.take_written()
            finished = self.place.finish(outcome)
            self._end(Ended("answered", outcome, finished))

    def leave(self, generated_tokens: int, how: How = "left") -> None:
        """It ended before its end, or nobody knows how long it was: so many tokens are a censored sample."""
        if self._is_first():
            self._admission.take_written()
            self.place.drop(generated_tokens)
            self._end(Ended(how, None, None))

    def fail(self) -> None:
        """The engine failed; nothing is learnt."""
        if self._is_first():
            self.place.fail()
            self._end(Ended("engine-error", None, None))

    async def taught(self) -> bool:
        """After its end: wait until what it taught would survive a crash. False where it taught nothing; raises where
        it could not be written."""
        if self.written is None:
            await self._foresight.complete(self.place)
        return await _survives(self.written)

    def refine(self, place: Place, embedding: Vector | None) -> None:
        """Predict it anew by its embedding; where it has ended, learn from it."""
        self._admission.take_written()
        self._admission.gate.refine(place, embedding)
        self.written = self._admission.take_written() or self.written

    async def _embed(self) -> Vector | None:
        if self._given is not None:
            return self._given
        if self._text is None:
            self._admission.telemetry.troubled("body-undecodable")
            return None
        return await self._admission.embedder.embed(self._text)

    def _is_first(self) -> bool:
        ended, self._ended = self._ended, True
        return not ended

    def _end(self, ended: Ended) -> None:
        """What every request leaves behind once it has had its turn: counts, a record, a line in the log."""
        shared, request, outcome = self._admission, self.request, ended.outcome
        self.written = shared.take_written() or self.written
        ticket = self.place.ticket
        if self._foresight.seconds is not None:
            shared.telemetry.predicted(ticket, self._foresight.seconds)
        shared.telemetry.ended(ended)
        if outcome is not None:
            shared.telemetry.spent(request, outcome)
        if outcome is not None and outcome.prompt_tokens is not None and self._text is not None:
            shared.estimate.learn(request.model, len(self._text), outcome.prompt_tokens)
        record = Record(
            ticket=ticket,
            how=ended.how,
            output_tokens=outcome.output_tokens if outcome else None,
            waited_s=(ticket.started_s or request.arrival_s) - request.arrival_s,
            total_s=shared.clock() - request.arrival_s,
        )
        shared.records.add(record)
        if _log.isEnabledFor(logging.DEBUG):
            _log.debug("request ended", extra=_line(self._door, record))


async def _survives(written: Awaitable[None] | None) -> bool:
    if written is None:
        return False
    await written
    return True


def _line(door: str, record: Record) -> dict[str, object]:
    request = record.ticket.request
    return {
        "request_id": request.id,
        "path": door,
        "model": request.model[:LOGGED_MODEL_CHARACTERS],
        "priority": request.priority,
        "how": record.how,
        "output_tokens": record.output_tokens,
        "waited_s": round(record.waited_s, 6),
        "total_s": round(record.total_s, 6),
    }
