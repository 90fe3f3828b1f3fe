"""Asks core's rule (preemption.py) whether a running request should give way, and tells it what the engine knows.

Looked at is the head of the line and who runs worst; the more requests wait, the fewer steps look. A victim is ranked
anew, and the decision made once more, before its place is taken.
"""

from collections.abc import Sequence
from heapq import nlargest, nsmallest
from typing import NamedTuple, Protocol

from sagesched.preemption import LOOK, Decision, Line, Pressure, Runner, Waiter, choose
from sagesched.ticket import Ticket
from sagesched_vllm.arrivals import EngineRequest
from sagesched_vllm.held import Held
from sagesched_vllm.order import Order
from sagesched_vllm.pace import PaceMeter
from sagesched_vllm.room import Room

LINE = 64
"""Waiting requests looked at, best first: what stands behind them gains little by one place."""
WAITING_PER_STEP = 64
"""For each so many that wait, one step more between two looks."""


class Resume(NamedTuple):
    """What it takes to run a request again, in tokens."""

    frees: int
    """KV tokens that come free: not those of a prefix that others hold too."""
    cached: int
    """Of what it has computed, tokens that the prefix cache would still find while nobody takes their blocks."""
    swaps: int
    """Tokens that are copied back and not computed again, where the cache is offloaded."""


class Memory(Protocol):
    """What the engine's cache says."""

    def free_tokens(self) -> int:
        """KV tokens that are free, those of a prefix that nobody runs with among them."""

    def resume(self, request: EngineRequest) -> Resume:
        """What a running request's resume would take."""


class Preempting:
    """See the module."""

    def __init__(self, order: Order, room: Room, memory: Memory, pace: PaceMeter) -> None:
        self._order = order
        self._room = room
        self._memory = memory
        self._pace = pace
        self._looked_step = 0
        self._step = 0

    def victims(self) -> tuple[str, list[EngineRequest]]:
        """Who gives way in this step, worst first, and to what pressure."""
        self._step += 1
        order, rule = self._order, self._order.ranking.settings.preemption
        waiting = order.ranking.waiting_count
        if not rule.enabled or not waiting or not order.running:
            return "", []
        if self._step - self._looked_step <= waiting // WAITING_PER_STEP:
            return "", []
        self._looked_step = self._step
        first = order.ranking.peek(order.now_s)
        worst = order.running.worst_rank()
        if first is None or worst is None or not first.rank < worst or order.ranking.is_promoted(first, order.now_s):
            return "", []
        return self._look(first)

    def _look(self, first: Ticket) -> tuple[str, list[EngineRequest]]:
        candidate = self._order.held(first.request.id)
        if candidate is None:
            return "", []
        fits = self._room.missing_tokens(candidate) <= 0
        if fits and len(self._order.running) < self._room.capacity.slots:
            return "", []
        pressure = Pressure.SLOTS if fits else Pressure.KV
        line = Line([self._waiter(ticket) for ticket in self._line()])
        worst = nlargest(LOOK, self._order.running.members.values(), key=lambda held: held.ticket.rank)
        decision = self._decide(worst, line, pressure)
        if decision.victims:
            chosen = {runner.rank.id for runner in decision.victims}
            worst = [held for held in worst if held.id in chosen]
            for held in worst:
                self._order.rank_now(held)
            worst.sort(key=lambda held: held.ticket.rank, reverse=True)
            decision = self._decide(worst, line, pressure)
        victims = [self._order.running.members[runner.rank.id] for runner in decision.victims]
        if not victims or self._room.missing_tokens(candidate, without=victims) > 0:
            return "", []
        for held in victims:
            held.gave_way += 1
        return decision.reason, [held.request for held in victims]

    def _line(self) -> list[Ticket]:
        return nsmallest(LINE, self._order.ranking.waiting_tickets(), key=lambda ticket: ticket.rank)

    def _decide(self, worst: Sequence[Held], line: Line, pressure: Pressure) -> Decision:
        """`worst`: worst first."""
        free = self._memory.free_tokens()
        demand = sum(waiter.need_tokens + waiter.tokens for waiter in line.waiters)
        runners = [self._runner(held, free - demand) for held in reversed(worst)]
        kv_tokens = float(self._room.kv_tokens() or self._room.capacity.slots)
        return choose(
            runners,
            line,
            pressure,
            self._pace.pace(self._room.capacity, kv_tokens),
            self._order.ranking.settings.preemption,
            running_weight=self._order.weight - line.weight,
            free_tokens=free,
        )

    def _waiter(self, ticket: Ticket) -> Waiter:
        held = self._order.held(ticket.request.id)
        assert held is not None, "who waits is held"
        if held.waiter is None or held.waiter.rank is not ticket.rank:
            weight = ticket.request.weight
            ahead = held.ahead_tokens()
            need = held.request.num_tokens + self._room.capacity.block_tokens
            score = ticket.score.amount / weight
            held.waiter = Waiter(ticket.rank, score, ahead, max(1.0, ticket.belief.mean_cost()), need, weight)
        return held.waiter

    def _runner(self, held: Held, spare_tokens: float) -> Runner:
        """`spare_tokens`: what stays free when all of the line that is looked at has started. Below 0, nothing does,
        and the blocks of whoever gives way are soon another's."""
        ticket, request = held.ticket, held.request
        resume = self._memory.resume(request)
        computed = request.num_computed_tokens
        kept = min(resume.cached, max(0, int(spare_tokens) + resume.frees))
        return Runner(
            rank=ticket.rank,
            score=ticket.score.amount / ticket.request.weight,
            tokens=held.ahead_tokens(),
            cost=max(1.0, ticket.belief.mean_cost()),
            held_tokens=resume.frees,
            recompute_tokens=max(0, computed - kept - resume.swaps),
            swap_tokens=resume.swaps,
            weight=ticket.request.weight,
            preemptions=held.gave_way,
            promoted=held.promoted,
        )
