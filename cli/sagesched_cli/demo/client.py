"""The load: one openai streaming call for each arrival, timed from the moment at which it should have arrived."""

import asyncio
from collections.abc import Sequence
from itertools import cycle

import msgspec
import openai

from sagesched_cli.demo.errors import DemoError
from sagesched_sim.workload.exchange import Exchange

REQUESTS_PER_POOL = 1000
"""As many connections as one openai client opens at once."""
RUN_LIMIT_S = 1800.0
REASON_HEADER = "x-sagesched-reason"
STREAM_OPTIONS = {"include_usage": True, "continuous_usage_stats": True}
"""The engine tells in each event how many tokens it has generated: an event of the demo holds many."""
_REFUSALS = (429, 503)


class Shot(msgspec.Struct, frozen=True):
    """What to send, under which id, and when (wall seconds after the start of the run)."""

    exchange: Exchange
    request_id: str
    arrival_s: float


class Served(msgspec.Struct, frozen=True):
    """One request as its client saw it; wall seconds after the start of the run."""

    arrival_s: float
    """When it should have been sent."""
    sent_s: float
    first_token_s: float
    last_token_s: float


class Refused(msgspec.Struct, frozen=True):
    """A request that the sidecar turned away."""

    status: int
    reason: str


class Observer:
    """What else happens at the moments of a request; nothing, unless a subclass says so."""

    def sent(self, shot: Shot) -> None:
        """It goes out now."""

    def ended(self, shot: Shot) -> None:
        """It is over, answered or not."""


async def drive(url: str, model: str, shots: Sequence[Shot], observer: Observer) -> tuple[Served | Refused, ...]:
    """Sends every shot at its time.

    Raises DemoError at the first request that fails, or whose answer has not the length that the workload says.
    """
    pools = -(-len(shots) // REQUESTS_PER_POOL)
    clients = [
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=None) for _ in range(pools)
    ]
    senders = cycle(_Sender(client, model, observer) for client in clients)
    start_s = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(RUN_LIMIT_S), asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(sender.send(shot, start_s)) for sender, shot in zip(senders, shots, strict=False)
            ]
    except* DemoError as failed:
        raise _first(failed) from None
    except* TimeoutError:
        raise DemoError(f"the run was not over after {RUN_LIMIT_S:.0f} s") from None
    finally:
        await asyncio.gather(*(client.close() for client in clients))
    return tuple(task.result() for task in tasks)


def _first(failed: BaseExceptionGroup[DemoError]) -> DemoError:
    first = failed.exceptions[0]
    return first if isinstance(first, DemoError) else _first(first)


class _Sender:
    """Sends shots through one client."""

    def __init__(self, client: openai.AsyncOpenAI, model: str, observer: Observer) -> None:
        self._client, self._model, self._observer = client, model, observer

    async def send(self, shot: Shot, start_s: float) -> Served | Refused:
        await asyncio.sleep(max(0.0, start_s + shot.arrival_s - asyncio.get_running_loop().time()))
        self._observer.sent(shot)
        try:
            return await self._exchange(shot, start_s)
        except openai.APIStatusError as error:
            if error.status_code in _REFUSALS:
                return Refused(error.status_code, error.response.headers.get(REASON_HEADER, "unknown"))
            raise DemoError(f"a request failed with {error.status_code}: {error.message}") from error
        except DemoError:
            raise
        except Exception as error:  # whatever this client or the transport beneath it raises
            raise DemoError(f"a request failed: {type(error).__name__}: {error}") from error
        finally:
            self._observer.ended(shot)

    async def _exchange(self, shot: Shot, start_s: float) -> Served:
        """One answer, read to its end. Its true length is in nothing that is sent."""
        now = asyncio.get_running_loop().time
        sent_s, first_s, tokens = now(), 0.0, 0
        stream = await self._client.chat.completions.create(
            model=self._model,
            messages=[{"role": "user", "content": shot.exchange.prompt}],
            stream=True,
            extra_body={"stream_options": STREAM_OPTIONS},
            extra_headers={"X-Request-Id": shot.request_id},
        )
        async for chunk in stream:
            if not first_s and chunk.choices and chunk.choices[0].delta.content:
                first_s = now()
            if chunk.usage is not None:
                tokens = chunk.usage.completion_tokens
        if tokens != shot.exchange.output_tokens:
            raise DemoError(f"an answer has {tokens} tokens where the workload says {shot.exchange.output_tokens}")
        return Served(shot.arrival_s, sent_s - start_s, first_s - start_s, now() - start_s)
