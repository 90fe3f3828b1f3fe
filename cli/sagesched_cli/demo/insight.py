"""What the sidecar says of its own predictions: explanations of single requests, and its counters."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from sagesched_cli.demo.client import Observer, Shot

_LOOKS = 200
_LOOK_AGAIN_S = 0.005


class Predicted(msgspec.Struct, frozen=True):
    """What was predicted for one request when it began to run, in tokens."""

    mean_tokens: float
    p10_tokens: float
    p90_tokens: float


class Explained(msgspec.Struct, frozen=True):
    """The sidecar's explanation of a request, given while it waited where one could be had."""

    request_id: str
    reasons: dict[str, Any]


class Watcher(Observer):
    """Asks for the prediction of every request that ends, and for the whole explanation of a few while they wait."""

    def __init__(
        self, url: str, session: aiohttp.ClientSession, candidates: Sequence[str], ended: Callable[[], object]
    ) -> None:
        self.predicted: dict[str, Predicted] = {}
        self._explained: dict[str, dict[str, Any]] = {}
        self._url = url
        self._session = session
        self._candidates = frozenset(candidates)
        self._ended = ended
        self._asking: set[asyncio.Task[None]] = set()

    def sent(self, shot: Shot) -> None:
        """A candidate is looked at from now on, until the sidecar knows it."""
        if shot.request_id in self._candidates:
            self._ask(self._explain(shot.request_id))

    def ended(self, shot: Shot) -> None:
        """The sidecar still knows what it had predicted, from prompt and history alone."""
        self._ask(self._predict(shot.request_id))
        self._ended()

    async def settle(self) -> None:
        """Until every question is answered."""
        await asyncio.gather(*self._asking)

    def stop(self) -> None:
        """Ask no more: whoever would answer is about to end."""
        for question in self._asking:
            question.cancel()

    def best_explained(self) -> Explained | None:
        """The first that had waiting requests before it; without one, the first at all."""
        told = [Explained(request_id, reasons) for request_id, reasons in self._explained.items()]
        return next((one for one in told if one.reasons["ahead"]), told[0] if told else None)

    def _ask(self, question: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(question)
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _predict(self, request_id: str) -> None:
        found = await self._fetch(request_id)
        if found is not None:
            quantiles = found["quantiles"]
            self.predicted[request_id] = Predicted(found["predicted_tokens"], quantiles["p10"], quantiles["p90"])

    async def _explain(self, request_id: str) -> None:
        for _ in range(_LOOKS):
            reasons = await self._fetch(request_id)
            if reasons is not None:
                self._explained[request_id] = reasons
                return
            await asyncio.sleep(_LOOK_AGAIN_S)

    async def _fetch(self, request_id: str) -> dict[str, Any] | None:
        async with self._session.get(f"{self._url}/sagesched/explain/{request_id}") as answer:
            if answer.status != 200:
                return None
            found: dict[str, Any] = msgspec.json.decode(await answer.read())
            return found


class Counters(msgspec.Struct, frozen=True):
    """What the sidecar has counted of its predictions."""

    pit_deciles: tuple[float, ...]
    """How many lengths fell in each tenth of their predicted distribution; as many in each when calibrated."""
    fallbacks: dict[str, int]
    """Requests that were ranked without a prediction of their own, by the trouble behind it."""


async def counters(url: str, session: aiohttp.ClientSession) -> Counters:
    """Read from the sidecar's metrics."""
    deciles, fallbacks = [0.0] * 10, {}
    async with session.get(f"{url}/metrics") as answer:
        for family in text_string_to_metric_families(await answer.text()):
            for sample in family.samples:
                if sample.name == "sagesched_prediction_pit_bucket_total":
                    deciles[int(sample.labels["decile"])] += sample.value
                elif sample.name == "sagesched_fallback_total" and sample.value:
                    fallbacks[sample.labels["reason"]] = int(sample.value)
    return Counters(tuple(deciles), fallbacks)
