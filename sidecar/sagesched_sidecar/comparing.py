"""The shadow candidate in the gate: what requests wait in the live order, and would in the candidate's."""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from prometheus_client.metrics_core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from sagesched.comparison import Comparison
from sagesched.ranking import Ranking
from sagesched.settings import Scheduling
from sagesched.ticket import Ticket
from sagesched.waiting import Rank


class Compared(NamedTuple):
    """A request that is compared: its key, and its two ranks when it started."""

    key: int | None
    live: Rank
    candidate: Rank


class Comparing:
    """Follows what the gate starts and ends. Without a candidate every call returns at once."""

    def __init__(self, ranking: Ranking) -> None:
        self._ranking = ranking
        self._keys: dict[Ticket, int | None] = {}
        self._running: dict[Ticket, Compared] = {}
        self._scheduling = ranking.settings.scheduling
        self._comparison = Comparison(self._scheduling.max_wait_seconds)

    def apply(self, scheduling: Scheduling) -> None:
        """Other settings of the order begin anew."""
        if scheduling != self._scheduling:
            self._keys, self._running = {}, {}
            self._scheduling, self._comparison = scheduling, Comparison(scheduling.max_wait_seconds)

    def arrived(self, ticket: Ticket, now_s: float, slots: int | None) -> None:
        """A request waits from now on, before so many slots; None where they are not known."""
        if self._ranking.beside.active:
            self._keys[ticket] = self._comparison.arrive(now_s, slots)

    def started(self, ticket: Ticket) -> None:
        """It has its turn."""
        if ticket in self._keys and ticket.beside is not None:
            self._running[ticket] = Compared(self._keys[ticket], ticket.rank, ticket.beside)

    def ended(self, ticket: Ticket, now_s: float | None) -> None:
        """It ended, answered at that time; None: it was not answered, and is left out of both orders."""
        if ticket not in self._keys:
            return
        key, compared = self._keys.pop(ticket), self._running.pop(ticket, None)
        if compared is None or now_s is None or ticket.started_s is None or ticket.sent_ahead:
            self._comparison.end(key, None, ticket.rank, ticket.rank)
        else:
            self._comparison.end(key, now_s - ticket.started_s, compared.live, compared.candidate)

    def status(self) -> dict[str, Any] | None:
        """For the status page; None without a candidate."""
        shadow, beside, comparison = self._scheduling.shadow, self._ranking.beside, self._comparison
        if shadow is None:
            return None
        waits = comparison.waits()
        return {
            "policy": shadow.policy,
            "trouble": beside.trouble,
            "choices": beside.choices,
            "agreed": beside.agreed,
            "requests": comparison.requests,
            "wait": None if waits is None else {"live": waits[0]._asdict(), "candidate": waits[1]._asdict()},
        }


class ComparingCollector(Collector):
    """Reads the comparison when it is scraped; nothing without a candidate."""

    def __init__(self, comparing: Comparing) -> None:
        self._comparing = comparing

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """What is known by now."""
        comparison, beside = self._comparing._comparison, self._comparing._ranking.beside
        if self._comparing._scheduling.shadow is None:
            return
        choices = CounterMetricFamily(
            "sagesched_shadow_candidate_choices",
            "Starts with a choice, by whether the candidate would have started the same request",
            labels=("agrees",),
        )
        choices.add_metric(("true",), beside.agreed)
        choices.add_metric(("false",), beside.choices - beside.agreed)
        yield choices
        yield CounterMetricFamily(
            "sagesched_shadow_candidate_requests", "Requests whose wait in both orders is known", comparison.requests
        )
        waits = CounterMetricFamily(
            "sagesched_shadow_candidate_wait_seconds", "Their waits in both orders, as played", labels=("order",)
        )
        waits.add_metric(("live",), comparison.live_s)
        waits.add_metric(("candidate",), comparison.candidate_s)
        yield waits
