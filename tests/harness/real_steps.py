"""`real_steps.py MODEL FILE`: a real model's steps, written down: each SchedulerOutput and what its runner answered.

vLLM on a CPU in this process, with a KV cache so small that requests are preempted. Writes a pickle of
[(SchedulerOutput, {request: tokens that it generated})], in order.
"""

import copy
import os
import pickle
import sys
from typing import Any

os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_USE_V2_MODEL_RUNNER": "0",
}
BLOCK_TOKENS, BLOCKS = 32, 17


def main(model: str, file: str) -> None:
    """See the module."""
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=model,
        dtype="float32",
        max_model_len=512,
        block_size=BLOCK_TOKENS,
        num_gpu_blocks_override=BLOCKS,
        max_num_seqs=4,
        max_num_batched_tokens=64,
        enforce_eager=True,
    )
    executor: Any = llm.llm_engine.engine_core.engine_core.model_executor
    steps: list[tuple[Any, dict[str, list[int]]]] = []
    execute, sample = executor.execute_model, executor.sample_tokens

    def noted(output: Any) -> Any:
        if output is not None and steps and output.req_ids:
            steps[-1][1].update(zip(output.req_ids, output.sampled_token_ids, strict=True))
        return output

    def execute_model(scheduler_output: Any, *arguments: Any, **named: Any) -> Any:
        steps.append((copy.deepcopy(scheduler_output), {}))
        return execute(scheduler_output, *arguments, **named)

    executor.execute_model = execute_model
    executor.sample_tokens = lambda *arguments, **named: noted(sample(*arguments, **named))
    prompts = [f"{word} " * 20 + "and so on:" for word in ("one", "red", "Paris", "north", "tea", "iron")]
    llm.generate(prompts, SamplingParams(temperature=0, max_tokens=110, ignore_eos=True), use_tqdm=False)
    with open(file, "wb") as written:
        pickle.dump(steps, written)


if __name__ == "__main__":
    main(*sys.argv[1:])
