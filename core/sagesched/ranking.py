"""Ranking: the one object that every host holds. Same calls, same order, whatever the host.

It predicts, costs and ranks each request, holds what waits in order, follows what runs, and learns from what ended. It
is synchronous and deterministic, and it has no clock: `now_s` comes with each call.
"""

import math
from collections.abc import Callable, Iterator

import msgspec

from sagesched.beside import Beside
from sagesched.calibration import ServiceUnit, Unit
from sagesched.cost import Cost
from sagesched.drift import Drift
from sagesched.explanation import Explanation, explain
from sagesched.gittins import Stopping
from sagesched.history import NO_NEIGHBOURS, HistoryWindow, Vector
from sagesched.lengths import LengthDistribution
from sagesched.policy import Belief, Score, policy_of
from sagesched.predictor import PRIOR, Level, Prediction, Predictor, told_by
from sagesched.request import Outcome, Request
from sagesched.scoreboard import Finished, Scoreboard
from sagesched.scoring import Score as LengthScore
from sagesched.scoring import crps, observed_tokens
from sagesched.settings import Scheduling, Settings, class_of
from sagesched.ticket import Phase, Ticket
from sagesched.waiting import Rank, WaitingOrder

RECALIBRATE = 1.25
"""Waiting requests are ranked anew when the time unit has changed by this factor since they last were."""


class Ranking:
    """See the module. Raises KeyError for an id that it does not hold, ValueError for one that it holds twice."""

    def __init__(self, settings: Settings, *, stopping: Stopping, dimensions: int) -> None:
        self._settings = settings
        self._stopping = stopping
        self._policy = policy_of(settings.scheduling)
        self.predictor = Predictor(settings.scheduling, HistoryWindow(settings.history.window_rows, dimensions))
        self.scoreboard = Scoreboard()
        self.drift = Drift()
        self.changes = 0
        """Times that lengths were found to have changed."""
        self._service = ServiceUnit()
        self._unit = Unit()
        self._since_ranked = 0
        self._tickets: dict[str, Ticket] = {}
        self._due: dict[str, None] = {}
        self.rankings = 0
        """How often everything that is held was ranked anew at once."""
        self._waiting = WaitingOrder(settings.scheduling.max_wait_seconds)
        self.beside = Beside(settings.scheduling)
        self._backlog = False
        self.learnt: Callable[[Request, Vector, Outcome], None] = lambda request, embedding, outcome: None
        """Called with each record that this host's own requests teach."""

    @property
    def settings(self) -> Settings:
        """The settings of now."""
        return self._settings

    @property
    def unit(self) -> Unit:
        """The time unit as calibrated now."""
        return self._service.unit()

    @property
    def waiting_count(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    @property
    def running_count(self) -> int:
        """Requests that run."""
        return len(self._tickets) - len(self._waiting)

    def admit(
        self, request: Request, embedding: Vector | None, now_s: float, *, told: LengthDistribution | None = None
    ) -> Ticket:
        """Predict and rank a request, which waits from now on. Without an embedding its rank comes from its class's
        and the global history alone; `told`: what another host predicted, which then stands as it is."""
        if request.id in self._tickets:
            raise ValueError(f"id: {request.id!r} is already held")
        prediction, trouble = (told_by(told), None) if told is not None else self.predict(request, embedding)
        belief = Belief(request, prediction.distribution, self._stopping, self._settings.scheduling)
        if not self._service.knows_cost:
            self._service.predicted(belief.mean_cost())
        self._recalibrate()
        usable = None if trouble else embedding
        score = self._policy.score(belief)
        ticket = Ticket(request, usable, prediction, belief, score, self._rank(request, score), trouble=trouble)
        self._tickets[request.id] = ticket
        self._waiting.push(ticket.rank)
        self.beside.wait(ticket, self._unit)
        self._note_waiting(now_s)
        return ticket

    def refine(self, request_id: str, embedding: Vector) -> Ticket:
        """Predict a request anew, now that its embedding is known; what it has generated stays."""
        ticket = self._tickets[request_id]
        ticket.prediction, ticket.trouble = self.predict(ticket.request, embedding)
        ticket.embedding = None if ticket.trouble else embedding
        ticket.belief = self._believe(ticket)
        self._rank_anew(ticket)
        return ticket

    def apply(self, settings: Settings) -> None:
        """Other settings from now on. All that is held is costed and ranked anew, in one step, and stays held.

        Predictions that other settings would have made otherwise are due; `repredict` makes them, some at a time.
        """
        if settings == self._settings:
            return
        before, after = self._settings.scheduling, settings.scheduling
        self._settings, self._policy = settings, policy_of(after)
        if self.predictor.apply(after, settings.history.window_rows):
            self._due = dict.fromkeys(self._tickets)
        if after == before:
            return
        self._waiting.max_wait_s = after.max_wait_seconds
        self.beside = Beside(after)
        if after.alpha != before.alpha:
            self._service.forget_costs()
        for ticket in self._tickets.values():
            ticket.request = _reclassed(ticket.request, before, after)
            ticket.belief = self._believe(ticket)
            if after.alpha != before.alpha:
                self._service.predicted(_whole_cost(ticket.belief))
            ticket.score = self._policy.score(ticket.belief)
        self._rank_all(self._service.unit())

    @property
    def due_count(self) -> int:
        """Requests whose prediction is due by `repredict`, those that have started meanwhile among them."""
        return len(self._due)

    def repredict(self, count: int) -> list[Ticket]:
        """Predict anew, by the settings of now, up to `count` of the requests that are due and wait."""
        made: list[Ticket] = []
        while self._due and len(made) < count:
            request_id = next(iter(self._due))
            del self._due[request_id]
            ticket = self._tickets.get(request_id)
            if ticket is None or ticket.phase is not Phase.WAITING or ticket.trouble:
                continue
            ticket.prediction, ticket.trouble = self.predict(ticket.request, ticket.embedding)
            ticket.belief = self._believe(ticket)
            self._rank_anew(ticket)
            made.append(ticket)
        return made

    def peek(self, now_s: float) -> Ticket | None:
        """Who goes next: the smallest rank, or the oldest once it has waited beyond the starvation bound."""
        rank = self._waiting.peek(now_s)
        return None if rank is None else self._tickets[rank.id]

    def oldest(self) -> Ticket | None:
        """Who has waited longest."""
        rank = self._waiting.oldest()
        return None if rank is None else self._tickets[rank.id]

    def is_promoted(self, ticket: Ticket, now_s: float) -> bool:
        """Whether this request goes next by the starvation bound alone, its rank being beaten."""
        return self._waiting.starving(now_s) is ticket.rank and self._waiting.smallest() is not ticket.rank

    def start(self, request_id: str, now_s: float, *, ahead: bool = False) -> Ticket:
        """It runs from now on; `ahead`: it may still wait in the engine, and `began` will tell."""
        ticket = self._tickets[request_id]
        self._waiting.remove(request_id)
        self.beside.start(ticket, now_s)
        ticket.phase, ticket.started_s, ticket.sent_ahead = Phase.RUNNING, now_s, ahead
        self._note_waiting(now_s)
        return ticket

    def put_back(self, request_id: str, now_s: float) -> None:
        """It was started just now and did not run after all: it waits as before."""
        ticket = self._tickets[request_id]
        ticket.phase, ticket.started_s = Phase.WAITING, None
        self._waiting.push(ticket.rank)
        self.beside.wait(ticket, self._unit)
        self._note_waiting(now_s)

    def began(self, request_id: str, now_s: float) -> None:
        """The first output of a request that was sent ahead has come: it runs since now."""
        ticket = self._tickets[request_id]
        if ticket.sent_ahead:
            ticket.started_s, ticket.sent_ahead = now_s, False

    def backlog(self, waits: bool, now_s: float) -> None:
        """Whether requests wait elsewhere, behind this ranking: in the engine's own queue."""
        if waits != self._backlog:
            self._backlog = waits
            self._note_waiting(now_s)

    def requeue(self, request_id: str, now_s: float) -> Ticket:
        """It was preempted and waits again, with the index of what it has attained."""
        ticket = self._tickets[request_id]
        ticket.phase = Phase.WAITING
        if ticket.started_s is not None:
            ticket.ran_s += now_s - ticket.started_s
            ticket.started_s = None
        self._rank_anew(ticket)
        self._note_waiting(now_s)
        return ticket

    def progress(self, request_id: str, generated_tokens: int) -> bool:
        """It has generated that many tokens. True when it crossed a bucket boundary and so got another rank."""
        ticket = self._tickets[request_id]
        bucket = self._settings.scheduling.bucket_tokens
        crossed = generated_tokens // bucket > ticket.belief.generated_tokens // bucket
        ticket.belief.generated_tokens = generated_tokens
        if crossed and self._policy.refreshes:
            self._rank_anew(ticket)
        return crossed and self._policy.refreshes

    def refresh(self, request_id: str, generated_tokens: int) -> Ticket:
        """As `progress`, but it gets its rank of now between boundaries too: before its place is taken away."""
        ticket = self._tickets[request_id]
        ticket.belief.generated_tokens = generated_tokens
        if self._policy.refreshes:
            self._rank_anew(ticket)
        return ticket

    def finish(self, request_id: str, outcome: Outcome, now_s: float) -> Finished:
        """It ended with that output; history learns from it."""
        ticket = self._tickets[request_id]
        cost = self._cost_of(ticket.request, outcome)
        if ticket.started_s is not None and outcome.output_tokens > 0:
            token_s = (ticket.ran_s + now_s - ticket.started_s) / outcome.output_tokens
            self._service.completion(cost, None if ticket.sent_ahead else token_s, now_s)
        self._remove(ticket, now_s)
        finished = self.scoreboard.judge(ticket.prediction, ticket.request, outcome)
        if finished.score is not None and self._settings.history.learn:
            self._watch_for_change(ticket, outcome, finished.score)
        self._learn(ticket.request, ticket.embedding, outcome)
        return finished

    def drop(self, request_id: str, now_s: float, *, generated_tokens: int = 0) -> None:
        """It left before its end. What it had generated is a censored sample; nothing generated is no sample."""
        ticket = self._tickets[request_id]
        self._remove(ticket, now_s)
        self._learn(ticket.request, ticket.embedding, Outcome(output_tokens=generated_tokens, censored=True))

    def learn_late(self, request: Request, embedding: Vector, outcome: Outcome) -> None:
        """An own request that is not held, or not any longer; a vector of another shape is no record."""
        self._learn(request, embedding, outcome)

    def learn(self, request: Request, embedding: Vector, outcome: Outcome) -> None:
        """History from elsewhere: a request that another host served."""
        self.predictor.learn(request, embedding, outcome)

    def predict(self, request: Request, embedding: Vector | None) -> tuple[Prediction, str | None]:
        """What a request's length is believed to be, and why that is the bare prior where the predictor failed: trouble
        never costs a request (docs/architecture.md)."""
        try:
            return self.predictor.predict(request, embedding, self.scoreboard.fallback(request.model)), None
        except Exception as error:
            bare = PRIOR.truncate(request.features.max_tokens)
            return Prediction(bare, (Level("prior", 1.0, 0.0, PRIOR),), NO_NEIGHBOURS), type(error).__name__

    def rank_unstarted(self, ticket: Ticket) -> Rank:
        """The rank that a request would have by its prediction, had it generated nothing yet."""
        belief = Belief(ticket.request, ticket.prediction.distribution, self._stopping, self._settings.scheduling)
        return self._rank(ticket.request, self._policy.score(belief))

    def remaining_tokens(self, request_id: str) -> float:
        """Tokens still to come, all choices together, as predicted now."""
        belief = self._tickets[request_id].belief
        return belief.mean_tokens() * belief.request.features.choices

    def explain(self, request_id: str) -> Explanation:
        """Why this request stands where it stands."""
        ticket = self._tickets[request_id]
        waits = ticket.phase is Phase.WAITING
        return explain(ticket, self._settings.scheduling.policy, self._waiting.ahead(ticket.rank) if waits else None)

    def waiting(self) -> list[Ticket]:
        """Every request that waits, smallest rank first."""
        return [self._tickets[rank.id] for rank in self._waiting.ranks()]

    def ticket(self, request_id: str) -> Ticket:
        """The place of one request."""
        return self._tickets[request_id]

    def waiting_tickets(self) -> Iterator[Ticket]:
        """Every request that waits, in no order; O(n)."""
        return (self._tickets[request_id] for request_id in self._waiting.ids())

    def tickets(self) -> list[Ticket]:
        """Every request held, in order of admission."""
        return list(self._tickets.values())

    def _learn(self, request: Request, embedding: Vector | None, outcome: Outcome) -> None:
        """Remember it, where there is something to remember and the settings want it."""
        if not self._settings.history.learn or embedding is None or outcome.output_tokens <= 0:
            return
        if embedding.shape == (self.predictor.window.dimensions,):
            kept = self.predictor.learn(request, embedding, outcome)
            if kept:
                self.learnt(request, embedding, outcome)

    def _watch_for_change(self, ticket: Ticket, outcome: Outcome, score: LengthScore) -> None:
        """Whether lengths have changed, so that something else is to be made of older records (drift.py)."""
        request, learnt = ticket.request, self.predictor.window.learnt
        observed = observed_tokens(request.features, outcome)
        if observed is None or ticket.trouble:
            return
        median = max(1.0, ticket.prediction.distribution.quantile(0.5))
        self.drift.fell(request.model, score.pit_deciles, math.log(observed / median), learnt)
        rivals = self.drift.rivals(request.model)
        if not rivals:
            return
        cap = request.features.max_tokens or math.inf
        tried = [self.predictor.predict(request, ticket.embedding, trial=rival) for rival in (None, *rivals)]
        winner = self.drift.tried(request.model, [crps(one.distribution, observed, cap) for one in tried], learnt)
        if winner is not None:
            self.predictor.changed(request, winner)
            self.changes += 1

    def _believe(self, ticket: Ticket) -> Belief:
        """What the ticket's prediction means by the settings of now; what it has generated stays."""
        belief = Belief(ticket.request, ticket.prediction.distribution, self._stopping, self._settings.scheduling)
        belief.generated_tokens = ticket.belief.generated_tokens
        return belief

    def _cost_of(self, request: Request, outcome: Outcome) -> float:
        """What it has cost, by the engine's own counts where it gave them."""
        prompt_tokens = request.prompt_tokens if outcome.prompt_tokens is None else outcome.prompt_tokens
        uncached = request.uncached_tokens
        if outcome.cached_tokens is not None:
            uncached = max(0, prompt_tokens - outcome.cached_tokens)
        cost = Cost.of(prompt_tokens, alpha=self._settings.scheduling.alpha, uncached_tokens=uncached)
        return cost.total(float(outcome.output_tokens)) * request.features.choices

    def _rank(self, request: Request, score: Score) -> Rank:
        return Rank(request.priority, self._policy.key(request, score, self._unit), request.arrival_s, request.id)

    def _rank_anew(self, ticket: Ticket) -> None:
        ticket.score = self._policy.score(ticket.belief)
        ticket.rank = self._rank(ticket.request, ticket.score)
        if ticket.phase is Phase.WAITING:
            self._waiting.push(ticket.rank)
            self.beside.wait(ticket, self._unit)

    def _remove(self, ticket: Ticket, now_s: float) -> None:
        if ticket.phase is Phase.WAITING:
            self._waiting.remove(ticket.request.id)
            self.beside.leave(ticket)
        del self._tickets[ticket.request.id]
        self._note_waiting(now_s)
        self._recalibrate()

    def _note_waiting(self, now_s: float) -> None:
        self._service.busy(self._backlog or len(self._waiting) > 0, now_s)

    def _recalibrate(self) -> None:
        """Rank everything in the unit of now once it has moved, so that all keys are always in one unit.

        Not before a quarter as many completions as there are requests, which keeps the cost per completion constant.
        """
        self._since_ranked += 1
        if not (self._policy.timed or self.beside.timed) or self._since_ranked < len(self._tickets) / 4:
            return
        unit = self._service.unit()
        if unit.is_near(self._unit, RECALIBRATE):
            return
        self._rank_all(unit)

    def _rank_all(self, unit: Unit) -> None:
        self._unit, self._since_ranked = unit, 0
        self.rankings += 1
        for ticket in self._tickets.values():
            ticket.rank = self._rank(ticket.request, ticket.score)
            if ticket.phase is Phase.WAITING:
                self.beside.wait(ticket, unit)
        self._waiting.push_all(t.rank for t in self._tickets.values() if t.phase is Phase.WAITING)


def _reclassed(request: Request, before: Scheduling, after: Scheduling) -> Request:
    """The request in its class as it is now; one whose class is no longer listed is in the default one."""
    old, new = class_of(before, request.class_name), class_of(after, request.class_name)
    if old == new:
        return request
    return msgspec.structs.replace(request, class_name=new.name, priority=new.priority, weight=new.weight)


def _whole_cost(belief: Belief) -> float:
    """What the request was expected to cost before its first token, all choices together."""
    atoms = belief.distribution
    return belief.request.features.choices * float(belief.cost.total(atoms.tokens) @ atoms.weights)
