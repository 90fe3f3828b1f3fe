"""vLLM's Executor over the fake runner: what EngineCore asks of a device, answered without one."""

from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import torch
from fake_runner import FakeRunner
from model_folder import VOCABULARY
from vllm.v1.executor import Executor
from vllm.v1.kv_cache_interface import FullAttentionSpec
from vllm.v1.outputs import EMPTY_MODEL_RUNNER_OUTPUT, ModelRunnerOutput


class Later(Future):  # type: ignore[type-arg]
    """A result that nobody sees as done before he waits for it: the device is always still at work."""

    def done(self) -> bool:
        """Never, so that the engine schedules the next step before it has this one's tokens."""
        return False


def later(result: Any) -> Future:  # type: ignore[type-arg]
    """A future of that."""
    future = Later()
    future.set_result(result)
    return future


class FakeExecutor(Executor):
    """One device that runs nothing."""

    def _init_executor(self) -> None:
        self.runner = FakeRunner(
            self.cache_config.block_size,
            second_kind=self.vllm_config.use_v2_model_runner,
            overlaps=bool(self.scheduler_config.async_scheduling),
            max_adapters=self.lora_config.max_loras if self.lora_config else 0,
        )

    def collective_rpc(self, method: Any, *_: Any, non_block: bool = False, **__: Any) -> Any:
        """One worker's answers to what is asked while the engine starts."""
        answers = {"get_supported_kv_cache_layouts": ["LBNHC"], "get_supported_tasks": ("generate",)}
        answer = [answers.get(method) if isinstance(method, str) else None]
        return later(answer) if non_block else answer

    def compile_or_warm_up_model(self) -> None:
        """Nothing to compile."""

    def initialize_from_config(self, kv_cache_configs: Any) -> None:
        """Nothing to allocate."""

    def determine_available_memory(self) -> list[int]:
        """Enough; `num_gpu_blocks_override` says how many blocks there are."""
        return [1 << 40]

    def get_kv_cache_specs(self) -> list[dict[str, Any]]:
        """One layer of full attention."""
        spec = FullAttentionSpec(
            block_size=self.cache_config.block_size, num_kv_heads=1, head_size=8, dtype=torch.float32
        )
        return [{"layer.0": spec}]

    def execute_model(self, scheduler_output: Any, non_block: bool = False) -> Any:
        """Compute; None, as where tokens are asked for apart."""
        self.runner.execute(scheduler_output)
        result = None if scheduler_output.total_num_scheduled_tokens else EMPTY_MODEL_RUNNER_OUTPUT
        return later(result) if non_block else result

    def sample_tokens(self, grammar_output: Any, non_block: bool = False) -> Any:
        """The tokens of the step that was executed last."""
        sampled = self.runner.sampled(allowed_tokens(grammar_output))
        output = ModelRunnerOutput(
            req_ids=list(sampled),
            req_id_to_index={request: index for index, request in enumerate(sampled)},
            sampled_token_ids=list(sampled.values()),
            logprobs=None,
            prompt_logprobs_dict={},
            pooler_output=[],
        )
        return later(output) if non_block else output

    def check_health(self) -> None:
        """Well."""

    def shutdown(self) -> None:
        """Nothing to end."""

    @classmethod
    def supports_async_scheduling(cls) -> bool:
        """As one of a GPU."""
        return True


def allowed_tokens(grammar_output: Any) -> dict[str, Sequence[int]]:
    """Of each request with a grammar: the tokens whose bit is set in its row of the mask."""
    if grammar_output is None:
        return {}
    bits = np.unpackbits(grammar_output.grammar_bitmask.view(np.uint8), axis=1, bitorder="little")[:, :VOCABULARY]
    return {
        request: np.flatnonzero(row).tolist()
        for request, row in zip(grammar_output.structured_output_request_ids, bits, strict=True)
    }
