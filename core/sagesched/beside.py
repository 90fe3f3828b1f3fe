"""A shadow candidate: another policy that ranks the same requests beside the live one and decides nothing."""

import msgspec

from sagesched.calibration import Unit
from sagesched.policy import Policy, policy_of
from sagesched.settings import Scheduling
from sagesched.ticket import Ticket
from sagesched.waiting import Rank, WaitingOrder


class Beside:
    """Keeps the candidate's order of what waits, and counts how often its next one is the one that started.

    Trouble in it ends it and nothing else; `trouble` has the error's type.
    """

    def __init__(self, live: Scheduling) -> None:
        self.trouble: str | None = None
        self.choices = 0
        """Starts of which there was a choice: more than one request waited."""
        self.agreed = 0
        """Of these, the ones that the candidate would have started too."""
        self._order = WaitingOrder(live.max_wait_seconds)
        self._policy: Policy | None = None
        if live.shadow is not None:
            boost = live.boost if live.shadow.boost is None else live.shadow.boost
            self._policy = policy_of(msgspec.structs.replace(live, policy=live.shadow.policy, boost=boost, shadow=None))

    @property
    def active(self) -> bool:
        """Whether there is a candidate."""
        return self._policy is not None

    @property
    def timed(self) -> bool:
        """Whether its keys depend on the time unit."""
        return self._policy is not None and self._policy.timed

    def wait(self, ticket: Ticket, unit: Unit) -> None:
        """It waits, with what is believed of it now."""
        if self._policy is None:
            return
        try:
            request = ticket.request
            key = self._policy.key(request, self._policy.score(ticket.belief), unit)
            ticket.beside = Rank(request.priority, key, request.arrival_s, request.id)
            self._order.push(ticket.beside)
        except Exception as error:  # the candidate is for comparison; no request is lost by it
            self._policy, self.trouble = None, type(error).__name__

    def start(self, ticket: Ticket, now_s: float) -> None:
        """It was started by the live policy."""
        if self._policy is None or ticket.request.id not in self._order:
            return
        if len(self._order) > 1:
            chosen = self._order.peek(now_s)
            self.choices += 1
            self.agreed += chosen is not None and chosen.id == ticket.request.id
        self._order.remove(ticket.request.id)

    def leave(self, ticket: Ticket) -> None:
        """It waits no longer and has not started."""
        if ticket.request.id in self._order:
            self._order.remove(ticket.request.id)
