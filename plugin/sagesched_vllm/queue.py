"""The engine's queue of what waits, best first. vLLM's RequestQueue by its methods.

Who is in it is kept apart from who goes first: whatever happens to the order, no request is lost, and without an order
the first come is first served.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from sagesched_vllm.arrivals import EngineRequest
from sagesched_vllm.order import Order

Fault = Callable[[str, Exception], None]

NOT_STARTED = {"WAITING", "PREEMPTED", "WAITING_FOR_STRUCTURED_OUTPUT_GRAMMAR", "WAITING_FOR_STREAMING_REQ"}
"""Statuses of one that was taken out and could not start: it is put back when the step ends. Others hold memory."""


class Doors(Protocol):
    """Says whether whoever goes next may start in this step."""

    def open_for(self, request: EngineRequest) -> bool:
        """Whether it may."""


class RankedQueue:
    """See the module. `fault` is told of each failure of the order, which is then not asked again in that step."""

    def __init__(self, order: Order, fault: Fault) -> None:
        self.order = order
        self._fault = fault
        self._held: OrderedDict[str, EngineRequest] = OrderedDict()
        self._next: EngineRequest | None = None
        self._taken: dict[str, bool] = {}
        """Taken out in this step, and whether one that came earlier was passed over."""
        self._popped: EngineRequest | None = None
        """Who was taken out last: whether the engine started it is seen when it asks for the next."""
        self._untold: dict[str, EngineRequest] = {}
        """Those that the order failed to take: told anew at each step."""
        self.ordered = True
        """False: first come, first served."""
        self.doors: Doors | None = None
        """Asked whether anybody may start; None lets everybody."""

    def begin(self, ordered: bool, doors: Doors | None) -> None:
        """A step begins."""
        self.ordered, self.doors, self._next = ordered, doors, None
        untold, self._untold = self._untold, {}
        for request_id, request in untold.items():
            if self._held.get(request_id) is request:
                self._tell(request)

    def end(self) -> int:
        """A step has ended; how many started before one that came earlier."""
        self.doors, self._next, self._popped = None, None, None
        passed_over = sum(self._taken.values())
        self._taken.clear()
        return passed_over

    def add_request(self, request: EngineRequest) -> None:
        """At its place in the order."""
        self._held[request.request_id] = request
        self._next = None
        self._tell(request)

    def prepend_request(self, request: EngineRequest) -> None:
        """One that was preempted; it goes back to its place in the order."""
        self.prepend_requests((request,))

    def prepend_requests(self, requests: Iterable[EngineRequest]) -> None:
        """Those that were taken out and could not start, or were preempted."""
        for request in requests:
            self._held[request.request_id] = request
            self._held.move_to_end(request.request_id, last=False)
            self._next = None
            if self._taken.pop(request.request_id, None) is None:
                self._tell(request)
            elif not self._try("queue", self.order.put_back, request.request_id):
                self._untold[request.request_id] = request

    def peek_request(self) -> EngineRequest:
        """Who goes next. Raises IndexError where nobody waits."""
        if self._next is None:
            self._next = self._choose()
        return self._next

    def pop_request(self) -> EngineRequest:
        """Take out who goes next. Raises IndexError where nobody waits."""
        request = self.peek_request()
        self._taken[request.request_id] = next(iter(self._held)) != request.request_id
        del self._held[request.request_id]
        self._next = None
        self._try("queue", self.order.started, request)
        self._popped = request
        return request

    def remove_request(self, request: EngineRequest) -> None:
        """It left."""
        self.remove_requests((request,))

    def remove_requests(self, requests: Iterable[EngineRequest]) -> None:
        """They left; those that are not here are none of our business."""
        for request in requests:
            if self._held.get(request.request_id) is request:
                del self._held[request.request_id]
        self._next = None

    def __bool__(self) -> bool:
        """Whether anybody waits; inside a step, whether anybody may start."""
        popped, self._popped = self._popped, None
        if popped is not None and popped.status.name in NOT_STARTED:
            self._try("queue", self.order.stays, popped.request_id)
        if not self._held:
            return False
        return self.doors is None or self.doors.open_for(self.peek_request())

    def __len__(self) -> int:
        return len(self._held)

    def __contains__(self, request: EngineRequest) -> bool:
        return self._held.get(request.request_id) is request

    def __iter__(self) -> Iterator[EngineRequest]:
        """Best first, as far as the order tells; a copy."""
        rest = dict(self._held)
        for ticket in self.order.ranking.waiting() if self.ordered else ():
            request = rest.pop(ticket.request.id, None)
            if request is not None:
                yield request
        yield from rest.values()

    def _choose(self) -> EngineRequest:
        if not self._held:
            raise IndexError("nobody waits")
        if self.ordered:
            try:
                return self._best()
            except Exception as error:  # whatever it is, somebody goes next
                self.ordered = False
                self._fault("queue", error)
        return next(iter(self._held.values()))

    def _best(self) -> EngineRequest:
        while (request_id := self.order.peek()) is not None:
            request = self._held.get(request_id)
            if request is not None:
                return request
            self.order.away(request_id)
        raise LookupError("the ranking knows of nobody who waits here")

    def _tell(self, request: EngineRequest) -> None:
        if not self._try("arrival", self.order.waits, request):
            self._untold[request.request_id] = request

    def _try(self, what: str, call: Callable[..., object], *arguments: object) -> bool:
        try:
            call(*arguments)
        except Exception as error:
            self.ordered = False
            self._fault(what, error)
            return False
        return True


class Skipped:
    """Where vLLM up to 0.30 puts what could not start, to look at it before all others. It goes back to its place in
    the order instead, and this always is empty."""

    def __init__(self, queue: RankedQueue) -> None:
        self._queue = queue
        self.add_request = queue.add_request
        self.prepend_request = queue.prepend_request
        self.prepend_requests = queue.prepend_requests
        self.remove_request = queue.remove_request
        self.remove_requests = queue.remove_requests

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0

    def __iter__(self) -> Iterator[EngineRequest]:
        """All that waits, among which vLLM looks for those whose blocks failed to load."""
        return iter(self._queue)
