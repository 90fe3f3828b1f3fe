"""One request's place in the ranking."""

from dataclasses import dataclass
from enum import Enum

from sagesched.history import Vector
from sagesched.policy import Belief, Score
from sagesched.predictor import Prediction
from sagesched.request import Request
from sagesched.waiting import Rank


class Phase(Enum):
    """Where a request is."""

    WAITING = "waiting"
    RUNNING = "running"


@dataclass(slots=True, eq=False)
class Ticket:
    """One request's place in the ranking. Hosts read it; only the ranking changes it."""

    request: Request
    embedding: Vector | None
    prediction: Prediction
    belief: Belief
    score: Score
    rank: Rank
    phase: Phase = Phase.WAITING
    started_s: float | None = None
    ran_s: float = 0.0
    """Seconds that it ran before it was last preempted."""
    beside: Rank | None = None
    """The shadow candidate's rank of it, as it was when it last waited."""
    sent_ahead: bool = False
    """It was sent to an engine that lets it wait, and since when it runs is not known yet."""
    trouble: str | None = None
    """Why the prediction is the bare prior: the error's type, where the predictor failed."""

    @property
    def generated_tokens(self) -> int:
        """Output tokens so far, of one choice."""
        return self.belief.generated_tokens
