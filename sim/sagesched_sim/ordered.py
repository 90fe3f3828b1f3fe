"""The engine with SageSched inside it: core's ranking orders what waits and what runs, and core's rule takes places.

Before each step what runs is sorted worst last, so that the engine's own preemption takes the worst, and a victim of
the rule goes back to the queue before the engine fills the place. Pure, as the engine is.
"""

import math
from collections import Counter
from typing import NamedTuple

from sagesched.history import Vector
from sagesched.kv import predicted_peak_tokens
from sagesched.preemption import LOOK, Decision, Line, Pace, Pressure, Runner, Waiter, choose
from sagesched.ranking import Ranking
from sagesched.request import Outcome, Request
from sagesched.ticket import Ticket
from sagesched.waiting import Rank
from sagesched_sim.engine import Engine, EngineLimits, StepResult
from sagesched_sim.profile import Profile
from sagesched_sim.sequence import EngineRequest, Sequence

STEP_MEMORY = 0.9
"""Weight that the time of a step keeps when the next one comes."""


class OrderedEngine(Engine):
    """`enter` instead of `submit`. `now_s` is the engine's time; whoever steps it may set it forward while it idles.

    `kv_reserve`: the share of the cache that the predicted peak may not fill when somebody starts (kv.py); None lets
    the engine start whatever fits at the moment, as it does by itself.
    """

    def __init__(self, profile: Profile, limits: EngineLimits, ranking: Ranking, kv_reserve: float | None) -> None:
        self.ranking = ranking
        self.now_s = 0.0
        self.decisions: Counter[str] = Counter()
        """Steps in which the first in line could not start, by the rule's reason."""
        self._tickets: dict[str, Ticket] = {}
        self._gave_way: Counter[str] = Counter()
        self._ahead: dict[str, _Ahead] = {}
        self._kv_reserve = kv_reserve
        self._changes = 0
        """Counts whoever came, went, started or was ranked anew."""
        self._refused: tuple[int, str] | None = None
        """Up to which change the first in line may not start, and the rule's reason; both stand until the next one."""
        self._step_s = profile.step_s(1, 0.0, 0)
        super().__init__(profile, limits, _RankedQueue(self))

    def enter(self, request: EngineRequest, ask: Request, embedding: Vector | None) -> None:
        """Take a request in; `ask` is what the ranking may know of it, of the same id. Raises as `submit` does."""
        self.submit(request)
        self._changes += 1
        self._tickets[request.id] = self.ranking.admit(ask, embedding, self.now_s)

    def ticket(self, sequence: Sequence) -> Ticket:
        """The sequence's place in the ranking."""
        return self._tickets[sequence.id]

    def first(self) -> Sequence | None:
        """Who goes next, whether it may start or not."""
        ticket = self.ranking.peek(self.now_s)
        return None if ticket is None else self._sequences[ticket.request.id]

    def leave(self, sequence: Sequence) -> None:
        """It was aborted."""
        self.ranking.drop(sequence.id, self.now_s, generated_tokens=sequence.generated_tokens)
        self._forget(sequence.id)

    def abort(self, request_id: str) -> int | None:
        """As the engine's; the ranking forgets it too."""
        sequence = self._sequences.get(request_id)
        runs = sequence in self._running
        generated = super().abort(request_id)
        if sequence is not None and runs:
            self.leave(sequence)
        return generated

    def step(self) -> StepResult:
        """As the engine's; the ranking follows."""
        result = super().step()
        self.now_s += result.duration_s
        if result.duration_s:
            self._step_s += (1 - STEP_MEMORY) * (result.duration_s - self._step_s)
        bucket = self.ranking.settings.scheduling.bucket_tokens
        for request_id in result.emitted:
            sequence = self._sequences.get(request_id)
            if sequence is not None and sequence.generated_tokens % bucket == 0:
                self._changes += self.ranking.progress(request_id, sequence.generated_tokens)
        for ended in result.finished:
            outcome = Outcome(output_tokens=ended.output_tokens, censored=ended.reason == "length")
            self.ranking.finish(ended.id, outcome, self.now_s)
            self._forget(ended.id)
        return result

    def start_first(self) -> None:
        """The first in line runs from now on."""
        first = self.first()
        assert first is not None
        self._changes += 1
        self.ranking.start(first.id, self.now_s)

    def put_back(self, sequence: Sequence) -> None:
        """It was preempted, by the rule or by the engine, and waits with the rank of what it has attained."""
        self._changes += 1
        self.ranking.refresh(sequence.id, sequence.generated_tokens)
        self.ranking.requeue(sequence.id, self.now_s)

    def may_start(self) -> Sequence | None:
        """The first in line, where there is memory for it."""
        if self._refused is not None and self._refused[0] == self._changes:
            return None
        first = self.first()
        return None if first is None or self.lacking_tokens(first) > 0 else first

    def _forget(self, request_id: str) -> None:
        self._changes += 1
        del self._tickets[request_id]
        self._ahead.pop(request_id, None)
        self._gave_way.pop(request_id, None)

    def lacking_tokens(self, first: Sequence) -> float:
        """KV tokens that are too few for it to start; 0 where it may."""
        now = (self.blocks.blocks_for(first.total_tokens) - self.blocks.free) * self.blocks.block_size
        if self._kv_reserve is None or not self._running:
            return max(0.0, now)
        places = (*self._running, first)
        held = [sequence.total_tokens + self.blocks.block_size / 2 for sequence in places]
        ahead = [self._ahead_of(sequence) for sequence in places]
        spread = math.sqrt(sum(one.spread_tokens**2 for one in ahead))
        peak = predicted_peak_tokens(held, [one.tokens for one in ahead])
        return max(0.0, now, peak + spread - self.blocks.capacity_tokens * (1 - self._kv_reserve))

    def _ahead_of(self, sequence: Sequence) -> "_Ahead":
        """What is believed of it, since it was last ranked."""
        ticket = self.ticket(sequence)
        known = self._ahead.get(sequence.id)
        if known is None or known.rank is not ticket.rank:
            belief = ticket.belief
            known = _Ahead(ticket.rank, belief.mean_tokens(), belief.mean_cost(), belief.spread_tokens())
            self._ahead[sequence.id] = known
        return known

    def _before(self, result: StepResult) -> None:
        if self._refused is not None and self._refused[0] == self._changes:
            self.decisions[self._refused[1]] += 1
            return
        self._refused = None
        self._running.sort(key=lambda sequence: self.ticket(sequence).rank)
        first = self.first()
        if first is None or not self._running:
            return
        lacking = self.lacking_tokens(first)
        if lacking == 0 and len(self._running) < self.limits.max_num_seqs:
            return
        decision = self._decide_freshly(Pressure.KV if lacking else Pressure.SLOTS, first, lacking)
        self.decisions[decision.reason] += 1
        if not decision.victims:
            self._refused = self._changes, decision.reason
        for victim in decision.victims:
            sequence = self._sequences[victim.rank.id]
            self._gave_way[sequence.id] += 1
            self._running.remove(sequence)
            self._preempt(sequence, result)

    def _decide_freshly(self, pressure: Pressure, first: Sequence, lacking_tokens: float) -> Decision:
        """Ranks are those of the last boundary; who is to give way is ranked anew first, and the rule asked again."""
        fresh: set[str] = set()
        while True:
            decision = self._decide(pressure, first, lacking_tokens)
            stale = {victim.rank.id for victim in decision.victims} - fresh
            if not stale:
                return decision
            for request_id in stale:
                self.ranking.refresh(request_id, self._sequences[request_id].generated_tokens)
            self._running.sort(key=lambda sequence: self.ticket(sequence).rank)
            fresh |= stale

    def _decide(self, pressure: Pressure, first: Sequence, lacking_tokens: float) -> Decision:
        rule = self.ranking.settings.preemption
        if not rule.enabled:
            return Decision("off")
        if not self.ticket(first).rank < self.ticket(self._running[-1]).rank:
            return Decision("order")
        line = Line([self._waiter(ticket) for ticket in self.ranking.waiting()])
        runners = [self._runner(sequence) for sequence in self._running[-LOOK:]]
        weight = sum(self.ticket(sequence).request.weight for sequence in self._running)
        free_tokens = first.total_tokens - lacking_tokens
        return choose(runners, line, pressure, self._pace(), rule, running_weight=weight, free_tokens=free_tokens)

    def _pace(self) -> Pace:
        recompute_s = (self.profile.token_ms + self.profile.extra_token_ms) / 1000
        if self.limits.resume == "copy":
            recompute_s = 0.0
        return Pace(self.limits.max_num_seqs, self.blocks.capacity_tokens, self._step_s, recompute_s)

    def _waiter(self, ticket: Ticket) -> Waiter:
        sequence = self._sequences[ticket.request.id]
        weight = ticket.request.weight
        ahead = self._ahead_of(sequence)
        score = ticket.score.amount / weight
        return Waiter(ticket.rank, score, ahead.tokens, ahead.cost, sequence.total_tokens, weight)

    def _runner(self, sequence: Sequence) -> Runner:
        ticket = self.ticket(sequence)
        weight = ticket.request.weight
        ahead = self._ahead_of(sequence)
        return Runner(
            ticket.rank,
            ticket.score.amount / weight,
            ahead.tokens,
            ahead.cost,
            held_tokens=sequence.blocks * self.blocks.block_size,
            recompute_tokens=sequence.computed_tokens,
            weight=weight,
            preemptions=self._gave_way[sequence.id],
        )


class _Ahead(NamedTuple):
    """What is still to come of a request, as of a rank."""

    rank: Rank
    tokens: float
    cost: float
    spread_tokens: float


class _RankedQueue:
    """The engine's waiting queue, as the ranking has it."""

    def __init__(self, engine: OrderedEngine) -> None:
        self._engine = engine

    def __len__(self) -> int:
        return self._engine.ranking.waiting_count

    def append(self, sequence: Sequence) -> None:
        """`enter` admits it."""

    def put_back(self, sequence: Sequence) -> None:
        self._engine.put_back(sequence)

    def peek(self) -> Sequence | None:
        return self._engine.may_start()

    def pop(self) -> None:
        self._engine.start_first()

    def forget(self, sequence: Sequence) -> None:
        self._engine.leave(sequence)
