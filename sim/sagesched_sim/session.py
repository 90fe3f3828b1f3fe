"""One HTTP request's view of the engine: its sequences, and the pieces of them that are ready to be sent."""

import asyncio

from sagesched_sim.surfaces.ask import Piece


class Sent:
    """How far one sequence has come, and how far it has been handed out."""

    __slots__ = (
        "first_token_s",
        "generated_tokens",
        "handed_tokens",
        "index",
        "prompt_tokens",
        "scheduled_s",
        "session",
    )

    def __init__(self, session: "Session", index: int, prompt_tokens: int) -> None:
        self.session = session
        self.index = index
        self.prompt_tokens = prompt_tokens
        self.generated_tokens = 0
        self.handed_tokens = 0
        self.scheduled_s: float | None = None
        self.first_token_s: float | None = None


class Session:
    """Pieces become ready as vLLM's `stream_interval` has it: the first token at once, then every `interval` tokens."""

    __slots__ = ("_interval", "_ready", "_waiter", "arrival_s", "choices", "max_tokens", "open_ids")

    def __init__(self, *, interval_tokens: int | None, arrival_s: float, max_tokens: int, choices: int) -> None:
        """`interval_tokens` None: only whole sequences are handed out (an answer that is not streamed)."""
        self._interval = interval_tokens
        self._ready: list[Piece] = []
        self._waiter: asyncio.Future[None] | None = None
        self.arrival_s = arrival_s
        self.max_tokens = max_tokens
        self.choices = choices
        self.open_ids: set[str] = set()
        """Engine ids of the sequences that have not ended."""

    def token(self, sent: Sent) -> None:
        """A sequence got a token."""
        sent.generated_tokens += 1
        interval = self._interval
        if interval is None:
            return
        if sent.handed_tokens == 0 or sent.generated_tokens - sent.handed_tokens >= interval:
            self._hand(sent, None)

    def finish(self, sent: Sent, reason: str) -> None:
        """A sequence has ended; its last token has been counted."""
        for at in range(len(self._ready) - 1, -1, -1):
            last = self._ready[at]
            if last.sequence == sent.index and last.end == sent.generated_tokens:
                # The last token was made ready by itself a moment ago: that piece carries the reason.
                self._ready[at] = Piece(last.sequence, last.begin, last.end, reason)
                return
        self._hand(sent, reason)

    def _hand(self, sent: Sent, reason: str | None) -> None:
        self._ready.append(Piece(sent.index, sent.handed_tokens, sent.generated_tokens, reason))
        sent.handed_tokens = sent.generated_tokens
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def pieces(self) -> list[Piece]:
        """What is ready, oldest first; waits for the first. Empty once every sequence has ended and been handed out."""
        if not self._ready and self.open_ids:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
            self._waiter = None
        ready, self._ready = self._ready, []
        return ready
