"""The engine against the wall clock: steps end at absolute deadlines, so that no delay adds up."""

import asyncio
import itertools
from collections.abc import Sequence

from sagesched_sim.admission import Wanted
from sagesched_sim.engine import Engine, StepResult
from sagesched_sim.observations import Observations
from sagesched_sim.sequence import EngineRequest
from sagesched_sim.session import Sent, Session


class PacedEngine:
    """Runs the engine in the event loop, `speedup` times as fast as its profile says."""

    def __init__(self, engine: Engine, *, speedup: float, observations: Observations) -> None:
        self.engine = engine
        self.lag_s = 0.0
        """How far the last step ended behind its deadline, in wall seconds: above a few ms this machine is too slow."""
        self._speedup = speedup
        self._seen = observations
        self._sent: dict[str, Sent] = {}
        self._ids = itertools.count()
        self._work = asyncio.Event()

    def open(self, wanted: Sequence[Wanted], *, interval_tokens: int | None, priority: int) -> Session:
        """Submits the sequences. Raises ValueError, having submitted none, where the engine refuses one."""
        now_s = asyncio.get_running_loop().time()
        session = Session(
            interval_tokens=interval_tokens,
            arrival_s=now_s,
            max_tokens=wanted[0].max_tokens,
            choices=len(wanted),
        )
        try:
            for index, one in enumerate(wanted):
                self._submit(session, index, one, priority)
        except ValueError:
            self.close(session)
            raise
        self._work.set()
        return session

    def _submit(self, session: Session, index: int, one: Wanted, priority: int) -> None:
        engine_id = f"s{next(self._ids)}"
        self.engine.submit(
            EngineRequest(
                id=engine_id,
                prompt_tokens=one.prompt_tokens,
                output_tokens=one.output_tokens,
                max_tokens=one.max_tokens,
                priority=priority,
                arrival_s=session.arrival_s,
            )
        )
        self._sent[engine_id] = Sent(session, index, one.prompt_tokens)
        session.open_ids.add(engine_id)

    def close(self, session: Session) -> None:
        """Aborts what the session still has in the engine."""
        for engine_id in session.open_ids:
            self.engine.abort(engine_id)
            self._sent.pop(engine_id, None)
        session.open_ids.clear()

    async def run(self) -> None:
        """Steps for ever; cancel it to stop."""
        loop = asyncio.get_running_loop()
        deadline_s = loop.time()
        while True:
            if not self.engine.has_work:
                self._work.clear()
                await self._work.wait()
                deadline_s = max(deadline_s, loop.time())
            result = self.engine.step()
            self._scheduled(result, deadline_s)
            wall_s = result.duration_s / self._speedup
            deadline_s += wall_s
            # When behind there is nothing to wait for, but the handlers must still get their turn.
            await asyncio.sleep(max(0.0, deadline_s - loop.time()))
            now_s = loop.time()
            self.lag_s = now_s - deadline_s
            self._deliver(result, now_s, wall_s)

    def _scheduled(self, result: StepResult, now_s: float) -> None:
        for engine_id in result.admitted:
            sent = self._sent[engine_id]
            if sent.scheduled_s is None:
                sent.scheduled_s = now_s

    def _deliver(self, result: StepResult, now_s: float, wall_s: float) -> None:
        """Hands out the step's tokens; a sequence that was aborted meanwhile gets none."""
        sequences = self._sent
        first = 0
        for engine_id in result.emitted:
            sent = sequences.get(engine_id)
            if sent is None:
                continue
            if sent.first_token_s is None:
                first += 1
                sent.first_token_s = now_s
                self._seen.first_token(sent, now_s)
            sent.session.token(sent)
        for finished in result.finished:
            sent = sequences.pop(finished.id, None)
            if sent is None:
                continue
            sent.session.open_ids.discard(finished.id)
            sent.session.finish(sent, finished.reason)
            self._seen.finished(sent, finished, now_s)
        self._seen.step(result, decoded=len(result.emitted) - first, wall_s=wall_s)
