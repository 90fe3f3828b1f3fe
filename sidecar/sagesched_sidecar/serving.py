"""A request that has its turn: its answer's bytes pass here, and what they say ends its visit."""

import aiohttp

from sagesched.request import Outcome
from sagesched_sidecar.admission import Visit
from sagesched_sidecar.meter import Meter
from sagesched_sidecar.orders import Order
from sagesched_sidecar.records import How
from sagesched_sidecar.streams import FullBody, Passage, StrippedEvents, Untouched, WatchedEvents

PROGRESS_TOKENS = 16
"""The gate hears of a request's progress once in so many tokens."""
EVENT_STREAM = "text/event-stream"


class Serving:
    """See the module. It is the passage of the answer's bytes."""

    def __init__(self, order: Order, visit: Visit) -> None:
        self._choices = order.ask.choices if order.ask else 1
        self._meter = Meter(order.surface, self._choices)
        self._asked_for_usage = order.strips
        self.visit = visit
        self._passage: Passage = Untouched()
        self._next_progress = PROGRESS_TOKENS
        self._refused_by_engine = False

    @property
    def strips(self) -> bool:
        """Whether the answer may become shorter than the engine's."""
        return isinstance(self._passage, StrippedEvents)

    def begin(self, source: aiohttp.ClientResponse) -> None:
        """The engine's answer has begun: choose how its bytes are read."""
        if source.status >= 400:
            self._refused_by_engine = True
        elif source.headers.get("Content-Encoding", "identity").lower() != "identity":
            return
        elif source.content_type == EVENT_STREAM:
            self._passage = StrippedEvents(self._meter) if self._asked_for_usage else WatchedEvents(self._meter)
        elif source.content_type.endswith("json"):
            self._passage = FullBody(self._meter)

    def feed(self, chunk: bytes) -> bytes:
        """What of the answer can be sent on now."""
        out = self._passage.feed(chunk)
        generated_tokens = self._meter.generated_tokens
        if generated_tokens >= self._next_progress:
            self._next_progress = generated_tokens + PROGRESS_TOKENS
            self.visit.progress(generated_tokens)
        return out

    def close(self) -> bytes:
        """What is sent after the last read."""
        return self._passage.close()

    def end(self, how: How) -> None:
        """Free the place and let history learn. The first call counts."""
        if how == "answered":
            self._answered()
        elif how == "left":
            self.visit.leave(self._meter.generated_tokens)
        else:
            self.visit.fail()

    def _answered(self) -> None:
        """A whole answer. Its length is the engine's count, else that of its events where it says that it ended; else
        it is as if the client had left: at least so long."""
        meter = self._meter
        if self._refused_by_engine or meter.failed:
            self.visit.fail()
            return
        usage = meter.usage
        counted = usage is not None and usage.output_tokens is not None
        if not counted and (meter.cut is None or not meter.events):
            self.visit.leave(meter.generated_tokens, "unmeasured")
            return
        self.visit.finish(
            Outcome(
                output_tokens=meter.output_tokens,
                prompt_tokens=usage.prompt_tokens if usage else None,
                cached_tokens=usage.cached_tokens if usage else None,
                censored=bool(meter.cut),
            )
        )
