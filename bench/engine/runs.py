"""One run each: a fresh engine, one policy, one seed's requests at their times; its raw result is kept on disk."""

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from bench.engine import servers, workload
from bench.engine.client import Served, Shot, drive
from bench.engine.policies import ENGINE, FCFS, POLICIES, Policy
from bench.engine.readings import Reading, full_rate, read, watch
from bench.engine.workload import CAPACITY_REQUESTS, MAX_TOKENS, Asked, Workload
from bench.machine import load as machine_load

from sagesched_sim.workload.exchange import Exchange

Say = Callable[[str], None]
OWN_HISTORY_REQUESTS = 200
"""Answered once by the model as it likes, before the runs with its own lengths: their history, and its capacity."""


class Plan(msgspec.Struct, frozen=True):
    """One run."""

    lengths: str
    """`replayed` or `own`."""
    load: float
    seed: int
    policy: str
    requests: int

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.lengths}-{self.load:g}-seed{self.seed}-{self.policy}"


class Capacity(msgspec.Struct, frozen=True):
    """What the engine does when it is never idle."""

    tokens_per_s: float
    history: tuple[dict[str, Any], ...] = ()
    """Own lengths alone: what it answered, as rows of a seed file."""
    mean_tokens: float = 0.0


class Run(msgspec.Struct, frozen=True):
    """A raw result."""

    plan: Plan
    setting: str
    """A hash of everything else that could change it: another setting does not take this result for its own."""
    rate_per_s: float
    served: tuple[Served, ...]
    preemptions: int
    load_before: list[float]
    load_after: list[float]


class Laboratory:
    """Where runs are made. `more`: settings of the sidecar over those that every run has."""

    def __init__(self, folder: Path, out: Path, more: dict[str, Any], say: Say) -> None:
        self._folder, self._out, self._more, self._say = folder, out, more, say
        self._workloads: dict[tuple[int, int], Workload] = {}
        out.mkdir(parents=True, exist_ok=True)

    def workload(self, seed: int, requests: int) -> Workload:
        """The seed's, made once."""
        which = seed, requests
        if which not in self._workloads:
            self._workloads[which] = workload.load(seed, requests, self._folder)
        return self._workloads[which]

    def run(self, plan: Plan) -> Run:
        """The kept result of this plan, or a new one."""
        policy, kept = POLICIES[plan.policy], self._out / f"{plan.name}.json"
        setting = self._setting(policy, plan.requests)
        with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
            run = msgspec.json.decode(kept.read_bytes(), type=Run)
            if run.setting == setting:
                return run
        self._say(plan.name)
        run = self._measure(plan, policy, setting)
        part = kept.with_suffix(".part")
        part.write_bytes(msgspec.json.encode(run))
        part.replace(kept)
        return run

    def capacity(self, lengths: str) -> Capacity:
        """Measured once and kept: the same load means the same rate in every run."""
        kept = self._out / f"capacity-{lengths}.json"
        with contextlib.suppress(FileNotFoundError, msgspec.MsgspecError):
            return msgspec.json.decode(kept.read_bytes(), type=Capacity)
        self._say(f"capacity, {lengths} lengths")
        found = self._measure_capacity(lengths)
        kept.write_bytes(msgspec.json.encode(found))
        return found

    def _setting(self, policy: Policy, requests: int) -> str:
        more = self._more if policy.mode else None
        facts = [requests, ENGINE, workload.SCALE, MAX_TOKENS, policy.engine, more]
        return hashlib.sha256(msgspec.json.encode(facts)).hexdigest()[:12]

    def _measure(self, plan: Plan, policy: Policy, setting: str) -> Run:
        work, capacity = self.workload(plan.seed, plan.requests), self.capacity(plan.lengths)
        mean = capacity.mean_tokens or sum(work.output_tokens) / len(work.output_tokens)
        rate_per_s = plan.load * capacity.tokens_per_s / mean
        if capacity.history:
            rows = list(capacity.history)
            earlier = tuple(Exchange(row["prompt"], row["output_tokens"]) for row in rows)
            work = Workload(work.asked, (), earlier)
        else:
            rows = [{"prompt": x.prompt, "output_tokens": x.output_tokens} for x in work.history]
        priorities = policy.priorities(work)
        times = workload.arrivals(plan.seed, rate_per_s, len(work.asked))
        shots = [Shot(asked, at_s) for asked, at_s in zip(work.asked, times, strict=True)]
        if priorities is not None:
            shots = [Shot(s.asked, s.arrival_s, p) for s, p in zip(shots, priorities, strict=True)]
        before = machine_load()
        with self._servers(plan, policy, work, rows) as (engine_url, url):
            served, preemptions = asyncio.run(_serve(engine_url, url, shots))
        wrong = sum(s.output_tokens != n for s, n in zip(served, work.output_tokens, strict=False))
        if wrong:
            raise RuntimeError(f"{plan.name}: {wrong} answers have not their recorded length")
        return Run(plan, setting, rate_per_s, tuple(served), preemptions, before, machine_load())

    @contextlib.contextmanager
    def _servers(
        self, plan: Plan, policy: Policy, work: Workload, rows: list[dict[str, Any]]
    ) -> Iterator[tuple[str, str]]:
        """The engine's URL and the one to send to."""
        asked = [asked.token_ids for asked in work.asked]
        lengths = zip(asked, work.output_tokens, strict=True) if work.output_tokens else None
        with servers.engine(self._folder, self._out / f"{plan.name}.log", policy, lengths) as engine_url:
            if policy.mode is None:
                yield engine_url, engine_url
                return
            history, file = self._out / "history.jsonl", self._out / "settings.json"
            servers.write_history(history, rows)
            settings = servers.sidecar_settings(policy, history, len(work.asked), self._more)
            try:
                with servers.sidecar(engine_url, settings, file) as url:
                    yield engine_url, url
            finally:
                history.unlink()  # prompts do not stay

    def _measure_capacity(self, lengths: str) -> Capacity:
        own = lengths == "own"
        work = self.workload(1, CAPACITY_REQUESTS)
        asked = workload.earlier(work, OWN_HISTORY_REQUESTS if own else CAPACITY_REQUESTS, self._folder)
        known = {x.prompt: x.output_tokens for x in work.history}
        truth = None if own else [(a.token_ids, known[a.prompt]) for a in asked]
        with servers.engine(self._folder, self._out / f"capacity-{lengths}.log", POLICIES[FCFS], truth) as url:
            served, seen = asyncio.run(_watched(url, [Shot(a, 0.0) for a in asked]))
        rate = full_rate(seen)
        if not own:
            return Capacity(rate)
        return Capacity(rate, _rows(asked, served), sum(s.output_tokens for s in served) / len(served))


def _rows(asked: list[Asked], served: list[Served]) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"prompt": a.prompt, "output_tokens": s.output_tokens, "censored": s.output_tokens >= MAX_TOKENS}
        for a, s in zip(asked, served, strict=True)
    )


async def _serve(engine_url: str, url: str, shots: list[Shot]) -> tuple[list[Served], int]:
    """What was served, and how often the engine preempted."""
    served = await drive(url, shots)
    async with aiohttp.ClientSession() as http:
        return served, round((await read(http, engine_url)).preemptions)


async def _watched(url: str, shots: list[Shot]) -> tuple[list[Served], list[Reading]]:
    seen: list[Reading] = []
    served = await _beside(watch(url, seen), drive(url, shots))
    return served, seen


async def _beside(watching: Coroutine[Any, Any, None], work: Coroutine[Any, Any, list[Served]]) -> list[Served]:
    task = asyncio.create_task(watching)
    try:
        return await work
    finally:
        task.cancel()
