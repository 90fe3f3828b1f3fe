"""What waits, in order, as rows that a person reads. No prompt text."""

from typing import Any

from aiohttp import web

from sagesched.ranking import Ranking
from sagesched.ticket import Ticket

ROWS = 100
MAX_ROWS = 1000


def queue_document(ranking: Ranking, now_s: float, max_wait_s: float, rows: int) -> dict[str, Any]:
    """The first `rows` of the queue, and how many wait in all."""
    waiting = ranking.waiting()
    shown = [_row(at, ticket, now_s, max_wait_s) for at, ticket in enumerate(waiting[:rows], 1)]
    return {"waiting": len(waiting), "rows": shown}


def rows_asked(request: web.BaseRequest) -> int:
    """The query's `limit`, 1 to MAX_ROWS; ROWS where it has none. Raises ValueError naming it."""
    text = request.query.get("limit", str(ROWS))
    if not (text.isdecimal() and len(text) <= 6 and 1 <= int(text) <= MAX_ROWS):
        raise ValueError(f"limit: must be 1 to {MAX_ROWS}")
    return int(text)


def _row(position: int, ticket: Ticket, now_s: float, max_wait_s: float) -> dict[str, Any]:
    request, age_s = ticket.request, now_s - ticket.request.arrival_s
    return {
        "position": position,
        "request_id": request.id,
        "class": request.class_name,
        "priority": request.priority,
        "model": request.model,
        "age_s": age_s,
        "starving": age_s > max_wait_s,
        "predicted_tokens": ticket.belief.mean_tokens(),
        "source": ticket.prediction.source,
        "index": ticket.score.amount,
        "key": ticket.rank.key,
    }
