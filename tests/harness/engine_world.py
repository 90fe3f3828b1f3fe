"""vLLM's own EngineCore with any scheduler class, and no model: add, abort, step, and look whether the laws hold."""

import copy
import functools
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chain_model import END, expected
from fake_executor import FakeExecutor
from fake_runner import FakeRunner
from model_folder import CONTEXT_TOKENS
from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.lora.request import LoRARequest
from vllm.sampling_params import SamplingParams
from vllm.v1.engine import EngineCoreRequest, FinishReason
from vllm.v1.engine.core import EngineCore
from vllm.v1.engine.parallel_sampling import ParentRequest

BLOCK_TOKENS = 16
MODES = {"sync": (False, False), "async": (True, False), "async, second runner": (True, True)}
"""(async scheduling, vLLM's second kind of model runner)."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One engine's size and mode."""

    mode: str = "sync"
    scheduler: str | None = None
    """`--scheduler-cls`; None: vLLM's own."""
    blocks: int = 32
    slots: int = 4
    step_tokens: int = 64
    policy: str = "fcfs"
    prefix_caching: bool = True
    adapters: int = 0
    """LoRA adapters at a time."""
    additional: tuple[tuple[str, Any], ...] = ()
    """`--additional-config`."""


@dataclass
class Ask:
    """One request, and what has come back for it."""

    name: str
    prompt: list[int]
    max_tokens: int
    adapter: int = 0
    grammar: bool = False
    may_end: bool = True
    """END ends it."""
    tokens: list[int] = field(default_factory=list)
    ended: Any = None
    """Its FinishReason; None while it runs."""
    aborted: bool = False

    @functools.cached_property
    def should_say(self) -> list[int]:
        """What it generates by itself, without a grammar."""
        return expected(self.prompt, self.max_tokens, self.adapter, ends=self.may_end)


class World:
    """An engine, what was asked of it, and what it answered."""

    def __init__(self, folder: Path, shape: Shape | None = None) -> None:
        self.shape = shape or Shape()
        # vLLM chooses by an environment variable that it reads once in a process, and only beside a compiler for GPUs.
        second = MODES[self.shape.mode][1]
        VllmConfig.use_v2_model_runner = property(lambda _: False)  # type: ignore[method-assign]
        config = _config(folder, self.shape)
        VllmConfig.use_v2_model_runner = property(lambda _: second)  # type: ignore[method-assign]
        self.core = EngineCore(config, FakeExecutor, log_stats=True)
        self.scheduler: Any = self.core.scheduler
        assert self.scheduler.use_v2_model_runner is second
        self.asked: dict[str, Ask] = {}
        self.admitted: list[str] = []
        """Requests in the order in which they first ran."""
        self.preemptions = 0

    @property
    def runner(self) -> FakeRunner:
        """The fake one behind it."""
        return self.core.model_executor.runner  # type: ignore[attr-defined,no-any-return]

    def add(
        self,
        name: str,
        prompt: Sequence[int],
        max_tokens: int,
        *,
        n: int = 1,
        adapter: int = 0,
        priority: int = 0,
        arrival: float | None = None,
        extra: dict[str, Any] | None = None,
        may_end: bool = True,
        **sampling: Any,
    ) -> list[Ask]:
        """A client's request: `n` of them in the engine, named as vLLM names them, for n > 1."""
        params = SamplingParams(
            n=n, max_tokens=max_tokens, stop_token_ids=[END] * may_end, extra_args=extra, **sampling
        )
        if params.structured_outputs is not None:
            params.structured_outputs._backend = "xgrammar"  # vLLM's front end chooses it, and there is none here
        whole = _request(name, prompt, params, adapter, priority, time.time() if arrival is None else arrival)
        parts = [whole]
        if n > 1:
            parent = ParentRequest(whole)
            parts = []
            for index in range(n):
                part = copy.copy(whole)
                part.request_id, part.sampling_params = parent.get_child_info(index)
                parts.append(part)
        asks = []
        for part in parts:
            ask = Ask(
                part.request_id,
                list(prompt),
                max_tokens,
                adapter,
                grammar=params.structured_outputs is not None,
                may_end=may_end,
            )
            self.asked[ask.name] = ask
            asks.append(ask)
            self.core.add_request(*self.core.preprocess_add_request(part))
        return asks

    def abort(self, *names: str) -> None:
        """Clients leave."""
        for name in names:
            ask = self.asked.get(name)
            if ask is not None and ask.ended is None:
                ask.aborted = True
                ask.ended = FinishReason.ABORT
        self.core.abort_requests(list(names))

    def step(self) -> None:
        """One step of the engine's own loop; what it says is written down."""
        outputs, _ = self.core.step_fn()
        for part in (outputs or {}).values():
            for output in part.outputs:
                self._take(output)
            if part.scheduler_stats is not None:
                self.preemptions = max(self.preemptions, _preemptions(self.scheduler))
        for name in self.runner.rows:
            if name not in self._seen:
                self._seen.add(name)
                self.admitted.append(name)

    @functools.cached_property
    def _seen(self) -> set[str]:
        return set()

    def busy(self) -> bool:
        """Whether the engine would go on."""
        return bool(self.scheduler.has_requests() or self.core.batch_queue)

    def drain(self, limit: int = 20_000) -> None:
        """Step until nothing is left."""
        for _ in range(limit):
            if not self.busy():
                return
            self.step()
        raise AssertionError(f"still busy after {limit} steps: {[a.name for a in self.asked.values() if not a.ended]}")

    def _take(self, output: Any) -> None:
        ask = self.asked[output.request_id]
        assert ask.ended is None, f"{ask.name} says more after its end"
        ask.tokens.extend(output.new_token_ids)
        ask.ended = output.finish_reason


def _preemptions(scheduler: Any) -> int:
    return sum(request.num_preemptions for request in scheduler.requests.values())


def _request(
    name: str, prompt: Sequence[int], params: SamplingParams, adapter: int, priority: int, arrival: float
) -> EngineCoreRequest:
    lora = LoRARequest(lora_name=f"adapter-{adapter}", lora_int_id=adapter, lora_path="/none") if adapter else None
    return EngineCoreRequest(
        request_id=name,
        prompt_token_ids=list(prompt),
        mm_features=None,
        sampling_params=params,
        pooling_params=None,
        arrival_time=float(arrival),
        lora_request=lora,
        cache_salt=None,
        data_parallel_rank=None,
        priority=priority,
        external_req_id=name,
    )


@functools.lru_cache(maxsize=2)
def _base(folder: Path, lora: bool) -> Any:
    arguments = EngineArgs(
        model=str(folder),
        dtype="float32",
        max_model_len=CONTEXT_TOKENS,
        block_size=BLOCK_TOKENS,
        num_gpu_blocks_override=64,
        max_num_batched_tokens=512,
        enforce_eager=True,
        disable_log_stats=False,
        enable_lora=lora,
    )
    return arguments.create_engine_config()


def _config(folder: Path, shape: Shape) -> Any:
    """A configuration that vLLM made and checked, with this engine's size put in: making one takes seconds."""
    config = copy.deepcopy(_base(folder, shape.adapters > 0))
    scheduler, cache = config.scheduler_config, config.cache_config
    scheduler.max_num_seqs, scheduler.max_num_batched_tokens = shape.slots, shape.step_tokens
    scheduler.policy, scheduler.scheduler_cls = shape.policy, shape.scheduler
    scheduler.async_scheduling = MODES[shape.mode][0]
    cache.num_gpu_blocks_override, cache.enable_prefix_caching = shape.blocks + 1, shape.prefix_caching
    # vLLM starts only where one request of the greatest length fits.
    config.model_config.max_model_len = scheduler.max_model_len = min(CONTEXT_TOKENS, shape.blocks * BLOCK_TOKENS)
    config.additional_config = dict(shape.additional)
    if shape.adapters:
        config.lora_config.max_loras = shape.adapters
    return config
