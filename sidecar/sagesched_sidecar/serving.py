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
        self._meter = Meter(order.surface, order.ask.choices if order.ask else 1)
        self._asked_for_usage = order.strips
        self.visit = visit
        self._passage: Passage = Untouched()
        self._next_progress = PROGRESS_TOKENS
        self._refused_by_engine = False
        self._silent = True

    @property
    def strips(self) -> bool:
        """Whether the answer may become shorter than the engine's."""
        return isinstance(self._passage, StrippedEvents)

    def begin(self, source: aiohttp.ClientResponse) -> None:
        """The engine's answer has begun: choose how its bytes are read."""
        self._refused_by_engine = source.status >= 400
        self._passage = passage_of(source, self._meter, strips=self._asked_for_usage)

    def feed(self, chunk: bytes) -> bytes:
        """What of the answer can be sent on now."""
        out = self._passage.feed(chunk)
        generated_tokens = self._meter.generated_tokens
        if generated_tokens and self._silent:
            self._silent = False
            self.visit.began()
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
            conclude(self.visit, self._meter, refused=self._refused_by_engine)
        elif how == "left":
            self.visit.leave(self._meter.generated_tokens)
        else:
            self.visit.fail()


def passage_of(source: aiohttp.ClientResponse, meter: Meter, *, strips: bool) -> Passage:
    """How the bytes of an answer are read. An error's and a compressed one's are not."""
    if source.status >= 400 or source.headers.get("Content-Encoding", "identity").lower() != "identity":
        return Untouched()
    if source.content_type == EVENT_STREAM:
        return StrippedEvents(meter) if strips else WatchedEvents(meter)
    return FullBody(meter) if source.content_type.endswith("json") else Untouched()


def conclude(visit: Visit, meter: Meter, *, refused: bool) -> None:
    """A whole answer. Its length is the engine's count, else that of its events where it says that it ended; else it
    is as if the client had left: at least so long. `refused`: the engine answered with an error."""
    if refused or meter.failed:
        visit.fail()
        return
    usage = meter.usage
    counted = usage is not None and usage.output_tokens is not None
    if not counted and (meter.cut is None or not meter.events):
        visit.leave(meter.generated_tokens, "unmeasured")
        return
    visit.finish(
        Outcome(
            output_tokens=meter.output_tokens,
            prompt_tokens=usage.prompt_tokens if usage else None,
            cached_tokens=usage.cached_tokens if usage else None,
            censored=bool(meter.cut),
        )
    )
