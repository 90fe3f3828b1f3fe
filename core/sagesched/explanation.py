"""Why a request stands where it stands."""

from dataclasses import dataclass

from sagesched.ticket import Ticket
from sagesched.waiting import Rank

QUANTILES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.99)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a request stands where it stands. Lengths in tokens of one choice, costs in token^2."""

    request_id: str
    phase: str
    policy: str
    source: str
    alone: str | None
    """The level that is used by itself, because the chain of them did worse lately than no neighbours at all."""
    levels: tuple[tuple[str, float, float], ...]
    """Name, share and samples of each."""
    neighbours: tuple[tuple[float, int], ...]
    quantiles: dict[str, float]
    predicted_tokens: float
    """Mean of the whole output as predicted, whatever has been generated since."""
    mean_tokens: float
    """Mean of what is still to come."""
    mean_cost: float
    index: float
    rank: Rank
    ahead: int | None
    """Waiting requests with a smaller rank; None when it no longer waits."""
    generated_tokens: int


def explain(ticket: Ticket, policy: str, ahead: int | None) -> Explanation:
    """The reasons behind a ticket's rank; `ahead`: how many waiting requests go before it."""
    prediction, belief = ticket.prediction, ticket.belief
    near = prediction.neighbours
    return Explanation(
        request_id=ticket.request.id,
        phase=ticket.phase.value,
        policy=policy,
        source=prediction.source,
        alone=prediction.alone,
        levels=tuple((level.name, level.share, level.samples) for level in prediction.levels),
        neighbours=tuple(zip(near.similarities.tolist(), near.output_tokens.astype(int).tolist(), strict=True)),
        quantiles={f"p{round(100 * q)}": prediction.distribution.quantile(q) for q in QUANTILES},
        predicted_tokens=prediction.distribution.mean(),
        mean_tokens=belief.mean_tokens(),
        mean_cost=belief.mean_cost(),
        index=belief.index(),
        rank=ticket.rank,
        ahead=ahead,
        generated_tokens=ticket.generated_tokens,
    )
