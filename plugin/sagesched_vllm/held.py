"""One request that the engine has, and what our order knows of it."""

from sagesched.preemption import Waiter
from sagesched.ticket import Ticket
from sagesched_vllm.arrivals import EngineRequest


class Held:
    """See the module."""

    __slots__ = (
        *("counted", "due_step", "due_tokens", "expected_tokens", "gave_way", "promoted", "request", "spread_tokens"),
        *("ticket", "waiter"),
    )

    def __init__(self, request: EngineRequest, ticket: Ticket) -> None:
        self.request = request
        self.ticket = ticket
        self.due_tokens = 0
        """Output tokens at which its index is due."""
        self.due_step = 0
        """The step in which it is looked at for that."""
        self.counted = (0.0, 0.0)
        """What it adds to the sums over all that run: KV tokens at its end, and their variance."""
        self.gave_way = 0
        """How often its place was taken by our rule."""
        self.promoted = False
        """It started by the starvation bound."""
        self.waiter: Waiter | None = None
        """It as the rule sees it while it waits."""
        self.predict()

    @property
    def id(self) -> str:
        """The request's id."""
        return self.request.request_id

    def predict(self) -> None:
        """Its output tokens at its end from what is believed now: their mean, and their standard deviation."""
        generated, distribution = self.request.num_output_tokens, self.ticket.belief.distribution
        self.expected_tokens = generated + distribution.mean_remaining(generated)
        self.spread_tokens = distribution.spread_remaining(generated)

    def ahead_tokens(self) -> float:
        """Output tokens still to come."""
        return max(1.0, self.expected_tokens - self.request.num_output_tokens)

    def end_tokens(self) -> float:
        """KV tokens that it is expected to have at its end."""
        return self.request.num_prompt_tokens + self.expected_tokens

    def is_prefilling(self) -> bool:
        """Whether tokens before its next one are still to be computed."""
        return self.request.num_computed_tokens + 1 < self.request.num_tokens
