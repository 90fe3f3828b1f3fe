"""When does it pay to take a running request's place away? (docs/preemption.md)

The host tells what runs and what waits in plain numbers; the answer is who gives way, and why nobody does. No clock, no
state: the same numbers, the same answer. Costs O(log waiting) for each runner looked at, once the line's sums are made.
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from enum import Enum
from itertools import accumulate
from math import expm1
from operator import itemgetter
from typing import Literal, NamedTuple

from sagesched.settings import Preemption
from sagesched.waiting import Rank

LOOK = 4
"""Runners looked at in a step, worst first: who gives way is among the worst, and a step must stay cheap."""


class Pressure(Enum):
    """What the first in line lacks: a place among the running, or memory for what it must hold to start."""

    SLOTS = "slots"
    KV = "kv"


class Pace(NamedTuple):
    """What the engine's capacity is and what a resume takes of it. Scaling all three times changes no decision."""

    slots: int
    """Requests that may run at once."""
    kv_tokens: float
    """Size of the KV cache."""
    token_s: float
    """Seconds for one output token of each running request: a step."""
    recompute_token_s: float
    """Seconds by which a token that is computed again lengthens the step of all."""
    swap_token_s: float = 0.0
    """The same for a token whose keys and values are copied back; 0 where copies overlap with computing."""


class Waiter(NamedTuple):
    """A request that waits, as the engine holds it. `tokens` (of output) and `cost`: means of what is still to come."""

    rank: Rank
    score: float
    """The policy's index over the weight, in any unit that all share; what hysteresis compares."""
    tokens: float
    cost: float
    """In token^2 (cost.py): KV tokens held, summed over steps."""
    need_tokens: float
    """KV tokens that it must be given to start."""
    weight: float = 1.0


class Runner(NamedTuple):
    """A request that runs; the first fields as a waiter's."""

    rank: Rank
    """The rank that it would wait with."""
    score: float
    tokens: float
    cost: float
    held_tokens: float
    """KV tokens that come free when it gives way: not those of a prefix that others hold too."""
    recompute_tokens: float
    """Tokens to compute again at its resume, less those expected in the prefix cache or in a copy."""
    swap_tokens: float = 0.0
    """Tokens to copy back at its resume."""
    weight: float = 1.0
    preemptions: int = 0
    """How often this rule has taken its place so far."""
    promoted: bool = False
    """It started by the starvation bound: it keeps its place."""


Reason = Literal["slots", "kv", "off", "nobody", "order", "kept", "gap", "cost", "short"]
"""`slots`, `kv`: somebody gives way. Else why nobody does: the rule is off, nobody waits or runs, no runner looked at
stands behind the first in line, those that do keep their place (cap, starvation bound), their score is too near, the
gain is below the cost, or all that pay free too little memory."""


class Decision(NamedTuple):
    """Who gives way, worst first, and what that is expected to gain and to cost: seconds of delay, times weight."""

    reason: Reason
    victims: tuple[Runner, ...] = ()
    gain: float = 0.0
    cost: float = 0.0


class Ahead(NamedTuple):
    """Those of the line that stand before some rank: how many, and their weights, tokens and costs together."""

    requests: int
    weight: float
    tokens: float
    cost: float


class Line:
    """What waits, best first, with the sums that the rule needs. Make a new one when the line has changed."""

    __slots__ = ("_sums", "waiters")

    def __init__(self, waiters: Sequence[Waiter]) -> None:
        """`waiters`: by rank, ascending; the caller keeps them so."""
        self.waiters = waiters
        self._sums: dict[_Field, list[float]] = {}

    @property
    def weight(self) -> float:
        """Of all that waits."""
        return self._sums_of(_weight)[-1]

    def ahead_of(self, rank: Rank) -> Ahead:
        """The sums over those that stand before `rank`."""
        count = bisect_left(self.waiters, rank, key=_rank)
        sums_of = self._sums_of
        return Ahead(count, sums_of(_weight)[count], sums_of(_tokens)[count], sums_of(_cost)[count])

    def _sums_of(self, field: "_Field") -> list[float]:
        """Over the first 0, 1, 2, ... of the line."""
        sums = self._sums.get(field)
        if sums is None:
            sums = self._sums[field] = list(accumulate(map(field, self.waiters), initial=0.0))
        return sums


_Field = Callable[[Waiter], float]
_rank, _tokens, _cost, _weight = (
    itemgetter(Waiter._fields.index(name)) for name in ("rank", "tokens", "cost", "weight")
)


def choose(
    running: Sequence[Runner],
    line: Line,
    pressure: Pressure,
    pace: Pace,
    rule: Preemption,
    *,
    running_weight: float | None = None,
    free_tokens: float = 0.0,
) -> Decision:
    """Who gives way to the first in line. Under SLOTS at most one; under KV as few as free what it needs, or none.

    `running`: by rank, the worst last; the last LOOK of them are enough, `running_weight` then being the weight of all.
    `free_tokens`: KV tokens that are free. Nobody gives way where the first in line does not rank before the worst that
    runs: a host that looks at that first need not ask. A no stands until somebody comes, goes or is ranked anew.
    """
    if not rule.enabled:
        return Decision("off")
    if not line.waiters or not running:
        return Decision("nobody")
    first = line.waiters[0]
    looked_at = running[: -LOOK - 1 : -1]
    reason, may = _candidates(looked_at, first, rule)
    if not may:
        return Decision(reason)
    if running_weight is None:
        running_weight = sum(runner.weight for runner in running)
    everyone = running_weight + line.weight
    paying = [
        offer
        for offer in (_offer(runner, line, pressure, pace, everyone) for runner in may)
        if offer.gain > (1 + rule.hysteresis) * offer.cost
    ]
    if not paying:
        return Decision("cost")
    paying.sort(key=lambda offer: offer.cost - offer.gain)
    taken = paying[:1] if pressure is Pressure.SLOTS else _enough(paying, first.need_tokens - free_tokens)
    if not taken:
        return Decision("short")
    gain, cost = sum(offer.gain for offer in taken), sum(offer.cost for offer in taken)
    return Decision("slots" if pressure is Pressure.SLOTS else "kv", tuple(offer.runner for offer in taken), gain, cost)


class _Offer(NamedTuple):
    """What one runner's place would gain and cost."""

    runner: Runner
    gain: float
    cost: float


def _candidates(runners: Sequence[Runner], first: Waiter, rule: Preemption) -> tuple[Reason, list[Runner]]:
    """The runners whose place may go to `first`; where there is none, the last hurdle that any of them met."""
    behind = [r for r in runners if first.rank < r.rank]
    if not behind:
        return "order", []
    free = [r for r in behind if r.preemptions < rule.max_per_request and not r.promoted]
    if not free:
        return "kept", []
    beaten = (1 + rule.hysteresis) * first.score
    return "gap", [r for r in free if beaten < r.score]


def _offer(runner: Runner, line: Line, pressure: Pressure, pace: Pace, everyone: float) -> _Offer:
    gain = _gain(runner, line.ahead_of(runner.rank), pressure, pace, line.weight)
    resume_s = runner.recompute_tokens * pace.recompute_token_s + runner.swap_tokens * pace.swap_token_s
    return _Offer(runner, gain, max(resume_s, pace.token_s) * everyone)


def _gain(runner: Runner, ahead: Ahead, pressure: Pressure, pace: Pace, waiting_weight: float) -> float:
    """Seconds, times weight, by which others end sooner, less those that the victim waits for them."""
    run_s = runner.tokens * pace.token_s
    mean_run_s = ahead.tokens / ahead.requests * pace.token_s
    if pressure is Pressure.SLOTS:
        step_s = mean_run_s / pace.slots
        places, work = 1.0, run_s / mean_run_s
    else:
        step_s = ahead.cost / ahead.requests * pace.token_s / pace.kv_tokens
        work = runner.cost * ahead.requests / ahead.cost
        places = min(work * mean_run_s / run_s, float(ahead.requests))
    wait_s = ahead.requests * step_s
    would_run_s = run_s * -expm1(-wait_s / run_s)
    gathered_s = max(0.0, places - 1) * places / 2 * step_s
    sooner_s = places * would_run_s + work * (wait_s - would_run_s) - gathered_s
    behind_s = (waiting_weight - ahead.weight) * gathered_s * step_s / mean_run_s
    return ahead.weight / ahead.requests * sooner_s - runner.weight * wait_s - behind_s


def _enough(paying: Sequence[_Offer], lacking_tokens: float) -> Sequence[_Offer]:
    """As many as free what is lacking, the best first; none where all together do not."""
    freed = 0.0
    for count, offer in enumerate(paying, start=1):
        freed += offer.runner.held_tokens
        if freed >= lacking_tokens:
            return paying[:count]
    return ()
