"""A step-level continuous-batching engine: pure, without clock, I/O or tokens' contents.

It schedules as vLLM V1 does (read in 0.32): a budget of tokens a step; running sequences first, then waiting ones as
places and blocks allow; long prompts in chunks; KV blocks taken as tokens grow; when they run out, the last admitted
sequence (under `priority`: the worst one) is preempted, its blocks freed and its tokens recomputed later; a step that
preempts admits nobody; a waiting sequence is admitted only where all of its known tokens fit. There is no prefix cache.
"""

from typing import Literal

import msgspec

from sagesched_sim.kv_blocks import BlockPool
from sagesched_sim.profile import Profile
from sagesched_sim.sequence import EngineRequest, Sequence
from sagesched_sim.waiting import Queue, SchedulingPolicy, WaitingQueue

Resume = Literal["recompute", "copy"]


class EngineLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What bounds the engine. Names are vLLM's."""

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    block_size: int = 16
    num_blocks: int = 2588
    max_model_len: int = 8192
    """Prompt and output of one request together, in tokens."""
    policy: SchedulingPolicy = "fcfs"
    resume: Resume = "recompute"
    """What a preempted sequence had computed: computed again, or kept elsewhere and copied back in no time."""

    def __post_init__(self) -> None:
        for field in ("max_num_seqs", "max_num_batched_tokens", "block_size", "num_blocks"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field}: {getattr(self, field)}; it must be at least 1")
        if not 2 <= self.max_model_len <= self.num_blocks * self.block_size:
            raise ValueError(
                f"max_model_len: {self.max_model_len} must be at least 2 and at most the KV cache's "
                f"{self.num_blocks * self.block_size} tokens; lower it or raise the KV capacity"
            )


class Finished(msgspec.Struct, frozen=True):
    """A sequence that ended in a step."""

    id: str
    reason: str
    """`stop` or `length`."""
    output_tokens: int
    preemptions: int


class StepResult(msgspec.Struct):
    """What one step did."""

    duration_s: float = 0.0
    emitted: list[str] = []
    """Ids that got one token each, those that finished included."""
    finished: list[Finished] = []
    admitted: list[str] = []
    """Ids that left the waiting queue, also those that were preempted before."""
    preempted: list[str] = []
    prefill_tokens: int = 0
    """Prompt (or recomputed) tokens computed."""
    decode_sequences: int = 0


class Engine:
    """`submit` and `abort` between steps, `step` while `has_work`. The same calls give the same results."""

    def __init__(self, profile: Profile, limits: EngineLimits, waiting: Queue | None = None) -> None:
        self.profile = profile
        self.limits = limits
        self.blocks = BlockPool(limits.num_blocks, limits.block_size)
        self._running: list[Sequence] = []
        self._waiting: Queue = WaitingQueue(limits.policy) if waiting is None else waiting
        self._sequences: dict[str, Sequence] = {}

    @property
    def running_count(self) -> int:
        """Sequences that hold a place."""
        return len(self._running)

    @property
    def waiting_count(self) -> int:
        """Sequences that wait, those that were preempted included."""
        return len(self._waiting)

    @property
    def has_work(self) -> bool:
        """Whether `step` would do something."""
        return bool(self._sequences)

    def submit(self, request: EngineRequest) -> None:
        """Take a request in. Raises ValueError where its id is taken or its prompt can never fit."""
        if request.id in self._sequences:
            raise ValueError(f"id: {request.id!r} is already in the engine; give each request its own")
        if request.prompt_tokens >= self.limits.max_model_len:
            raise ValueError(
                f"prompt_tokens: {request.prompt_tokens} leave no room for an output within max_model_len "
                f"{self.limits.max_model_len}; shorten the prompt"
            )
        sequence = Sequence(request, self.limits.max_model_len)
        self._sequences[request.id] = sequence
        self._waiting.append(sequence)

    def abort(self, request_id: str) -> int | None:
        """Drop a request and free its blocks. Returns its generated tokens; None where it is not here (any more)."""
        sequence = self._sequences.pop(request_id, None)
        if sequence is None:
            return None
        sequence.ended = True
        if sequence in self._running:
            self._running.remove(sequence)
        else:
            self._waiting.forget(sequence)
        self._release(sequence)
        return sequence.generated_tokens

    def step(self) -> StepResult:
        """Schedule and compute one step; the state afterwards is that at the step's end."""
        result = StepResult()
        self._before(result)
        gave_way = len(result.preempted)
        budget = self._schedule_running(result)
        if len(result.preempted) == gave_way:
            self._admit(budget, result)
        self._advance(result)
        return result

    def _before(self, result: StepResult) -> None:
        """For a scheduler that changes the order or takes places away before a step."""

    def _schedule_running(self, result: StepResult) -> int:
        """Gives each running sequence its chunk, oldest first; returns what is left of the token budget."""
        budget = self.limits.max_num_batched_tokens
        block_size = self.limits.block_size
        running = self._running
        index = 0
        while index < len(running) and budget > 0:
            sequence = running[index]
            chunk = min(sequence.total_tokens - sequence.computed_tokens, budget)
            lacking = -(-(sequence.computed_tokens + chunk) // block_size) - sequence.blocks
            if lacking > 0:
                while not self.blocks.take(lacking):
                    victim_index = self._worst_running()
                    victim = running.pop(victim_index)
                    if victim_index < index:
                        index -= 1
                    budget += victim.chunk_tokens
                    self._preempt(victim, result)
                    if victim is sequence:
                        return budget
                sequence.blocks += lacking
            sequence.chunk_tokens = chunk
            budget -= chunk
            index += 1
        return budget

    def _worst_running(self) -> int:
        """Who loses its place: the last admitted, or under `priority` the highest value, the latest of these."""
        running = self._running
        if self.limits.policy == "fcfs":
            return len(running) - 1
        return max(range(len(running)), key=lambda i: (running[i].request.priority, running[i].request.arrival_s))

    def _preempt(self, victim: Sequence, result: StepResult) -> None:
        self._release(victim)
        if self.limits.resume == "recompute":
            victim.computed_tokens = 0
        victim.chunk_tokens = 0
        victim.preemptions += 1
        self._waiting.put_back(victim)
        result.preempted.append(victim.id)

    def _admit(self, budget: int, result: StepResult) -> None:
        """Waiting sequences take the places that are left, while the head's known tokens all fit."""
        while budget > 0 and len(self._running) < self.limits.max_num_seqs:
            sequence = self._waiting.peek()
            if sequence is None or self.blocks.blocks_for(sequence.total_tokens) > self.blocks.free:
                return
            self._waiting.pop()
            sequence.chunk_tokens = min(sequence.total_tokens - sequence.computed_tokens, budget)
            sequence.blocks = self.blocks.blocks_for(sequence.computed_tokens + sequence.chunk_tokens)
            self.blocks.take(sequence.blocks)
            budget -= sequence.chunk_tokens
            self._running.append(sequence)
            result.admitted.append(sequence.id)

    def _advance(self, result: StepResult) -> None:
        """Computes the chunks: time passes, tokens come out, sequences end."""
        context_tokens = 0
        prefill_pairs = 0.0
        emitted = result.emitted
        for sequence in self._running:
            chunk = sequence.chunk_tokens
            if chunk == 0:
                continue
            past = sequence.computed_tokens
            sequence.chunk_tokens = 0
            computed = past + chunk
            sequence.computed_tokens = computed
            if chunk == 1 and past > 0 and computed == sequence.total_tokens:
                result.decode_sequences += 1
                context_tokens += computed
            else:
                result.prefill_tokens += chunk
                prefill_pairs += chunk * (past + chunk / 2)
            if computed == sequence.total_tokens:
                sequence.total_tokens += 1
                sequence.generated_tokens += 1
                emitted.append(sequence.id)
                if sequence.generated_tokens >= sequence.last_token:
                    self._finish(sequence, result)
        tokens = result.prefill_tokens + result.decode_sequences
        result.duration_s = self.profile.step_s(tokens, prefill_pairs, context_tokens)
        if result.finished:
            self._running = [sequence for sequence in self._running if not sequence.ended]

    def _finish(self, sequence: Sequence, result: StepResult) -> None:
        sequence.ended = True
        self._release(sequence)
        del self._sequences[sequence.id]
        result.finished.append(
            Finished(sequence.id, sequence.finish_reason, sequence.generated_tokens, sequence.preemptions)
        )

    def _release(self, sequence: Sequence) -> None:
        self.blocks.give(sequence.blocks)
        sequence.blocks = 0
