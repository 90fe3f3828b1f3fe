"""A scheduler that does what vLLM's does to its queues, in a few lines and without vLLM: for the plugin's fast tests.

Each step gives every running request one token; blocks are counted, and the last of `running` is evicted where they run
out. The tests in tests/harness have vLLM's own.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

from sagesched.hint import Hint, encode
from sagesched.settings import Settings, digest
from sagesched_vllm.conductor import Conductor
from sagesched_vllm.preempting import Resume
from sagesched_vllm.queue import Skipped
from sagesched_vllm.room import Capacity
from sagesched_vllm.settings_file import Loaded

Status = IntEnum(
    "Status",
    ["WAITING", "RUNNING", "PREEMPTED", "FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED", "FINISHED_ABORTED"],
)
BLOCK_TOKENS = 16


def hint(*lengths: float, weights: tuple[float, ...] = (), **more: Any) -> dict[str, Any]:
    """What the sidecar would have put beside such a prediction."""
    return encode(Hint(lengths=lengths, weights=weights or (1.0,) * len(lengths), **more))


@dataclass(eq=False)
class ModelRequest:
    """As much of vLLM's Request as is read; `length` is its true output, which nobody else knows."""

    request_id: str
    length: int
    num_prompt_tokens: int = 16
    max_tokens: int = 4096
    priority: int = 0
    arrival_time: float = 0.0
    extra_args: dict[str, Any] | None = None
    lora_request: Any = None
    status: Any = Status.WAITING
    num_output_tokens: int = 0
    num_computed_tokens: int = 0
    num_preemptions: int = 0

    @property
    def sampling_params(self) -> Any:
        return SimpleNamespace(extra_args=self.extra_args)

    @property
    def num_tokens(self) -> int:
        return self.num_prompt_tokens + self.num_output_tokens

    @property
    def blocks(self) -> int:
        return -(-self.num_computed_tokens // BLOCK_TOKENS)

    def is_finished(self) -> bool:
        return self.status > Status.PREEMPTED


class News:
    """A settings file that nobody writes: `put` is what its watch would find."""

    def __init__(self, settings: Settings) -> None:
        self.first = Loaded(settings, digest(settings))
        self.next: list[Any] = []

    def put(self, settings: Settings) -> None:
        self.next.append(Loaded(settings, digest(settings)))

    def take(self) -> Any:
        return self.next.pop(0) if self.next else None


@dataclass(eq=False)
class ModelScheduler:
    """See the module."""

    slots: int = 4
    blocks: int = 1000
    settings: Settings = field(default_factory=Settings)
    as_before_0_31: bool = False
    """It has a queue of what could not start."""
    step_tokens: int = 1
    """Generated in a step by each request."""

    def __post_init__(self) -> None:
        self.requests: dict[str, ModelRequest] = {}
        self.running: list[ModelRequest] = []
        self.finished_req_ids: set[str] = set()
        self.blocked: set[str] = set()
        """Requests that cannot start though it is their turn, as while a grammar is compiled."""
        self.started: list[str] = []
        self.ended: list[str] = []
        self.gave_way: list[str] = []
        self.preemptions = 0
        self.now_s = 1_000.0
        self.news = News(self.settings)
        capacity = Capacity(self.slots, self.blocks * BLOCK_TOKENS, BLOCK_TOKENS)
        self.sage: Any = Conductor(
            self, self.news, capacity, self.used_tokens, self, lambda: self.now_s, step_tokens=self.step_tokens
        )  # type: ignore[arg-type]
        self.waiting = self.sage.queue

    def used_tokens(self) -> int:
        """KV tokens that are taken."""
        return sum(request.blocks for request in self.running) * BLOCK_TOKENS

    def free_tokens(self) -> int:
        """KV tokens that are free."""
        return self._free() * BLOCK_TOKENS

    def resume(self, request: ModelRequest) -> Resume:
        """Nothing is shared, and nothing is found again."""
        return Resume(request.blocks * BLOCK_TOKENS, 0, 0)

    def preempt_for_order(self, request: ModelRequest) -> bool:
        """Our own preemption."""
        self.running.remove(request)
        self._preempt(request)
        self.gave_way.append(request.request_id)
        return True

    def add(self, request_id: str, length: int, **more: Any) -> ModelRequest:
        """A request comes."""
        request = ModelRequest(request_id, length, **{"arrival_time": self.now_s} | more)
        self.requests[request_id] = request
        self.waiting.add_request(request)
        return request

    def abort(self, request_id: str) -> None:
        """Its client leaves."""
        request = self.requests[request_id]
        if request in self.running:
            self.running.remove(request)
        self.waiting.remove_requests([request])
        self._end(request, Status.FINISHED_ABORTED)

    def step(self, before_it: Callable[[], None] = lambda: None) -> None:
        """One step, and its tokens; `before_it` is called once our look before it is over."""
        self.sage.before()
        try:
            before_it()
            self._schedule()
        finally:
            self.sage.after(len(self.running), len(self.running))
        self.finished_req_ids = set()
        self.now_s += 0.1
        self._generate()

    def drain(self, limit: int = 100_000) -> None:
        """Until nothing is left."""
        for _ in range(limit):
            if not self.requests:
                return
            self.step()
        raise AssertionError(f"still there: {sorted(self.requests)}")

    def _schedule(self) -> None:
        at, preempted = 0, False
        while at < len(self.running):
            request = self.running[at]
            while request.num_tokens > request.blocks * BLOCK_TOKENS and self._free() < self._lacking(request):
                preempted = True
                victim = self.running.pop()
                self._preempt(victim)
                if victim is request:
                    break
            else:
                request.num_computed_tokens = request.num_tokens
                at += 1
        skipped = []
        while not preempted and self.waiting and len(self.running) < self.slots:
            request = self.waiting.peek_request()
            if request.request_id in self.blocked:
                skipped.insert(0, self.waiting.pop_request())
                continue
            if self._lacking(request) > self._free():
                break
            assert self.waiting.pop_request() is request
            request.status, request.num_computed_tokens = Status.RUNNING, request.num_tokens
            self.running.append(request)
            self.started.append(request.request_id)
        if skipped:
            (Skipped(self.waiting) if self.as_before_0_31 else self.waiting).prepend_requests(skipped)

    def _preempt(self, request: ModelRequest) -> None:
        request.status, request.num_computed_tokens = Status.PREEMPTED, 0
        request.num_preemptions += 1
        self.preemptions += 1
        self.waiting.prepend_request(request)

    def _generate(self) -> None:
        for request in list(self.running):
            most = min(request.length, request.max_tokens)
            request.num_output_tokens = min(most, request.num_output_tokens + self.step_tokens)
            if request.num_output_tokens >= most:
                self.running.remove(request)
                capped = request.num_output_tokens < request.length
                self._end(request, Status.FINISHED_LENGTH_CAPPED if capped else Status.FINISHED_STOPPED)

    def _end(self, request: ModelRequest, status: Any) -> None:
        request.status = status
        del self.requests[request.request_id]
        self.finished_req_ids.add(request.request_id)
        self.ended.append(request.request_id)

    def _free(self) -> int:
        return self.blocks - sum(request.blocks for request in self.running)

    def _lacking(self, request: ModelRequest) -> int:
        return -(-request.num_tokens // BLOCK_TOKENS) - request.blocks
