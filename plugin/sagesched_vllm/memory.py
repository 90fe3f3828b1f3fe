"""What vLLM's cache says of its blocks. Everything is read, nothing is touched."""

from typing import Any

from sagesched_vllm.preempting import Resume
from sagesched_vllm.room import Capacity

OFFLOADING = "Offloading"
"""In the name of the KV connector that keeps copies in CPU memory."""


class EngineMemory:
    """The cache of one of vLLM's schedulers. One block of the pool stands for nothing and is never given away."""

    def __init__(self, scheduler: Any) -> None:
        self._manager = scheduler.kv_cache_manager
        self._pool = scheduler.kv_cache_manager.block_pool
        self._block_tokens: int = scheduler.block_size
        self._one_kind = len(scheduler.kv_cache_config.kv_cache_groups) == 1
        self._slots: int = scheduler.max_num_running_reqs
        self._is_offloaded = OFFLOADING in type(scheduler.connector).__name__

    def capacity(self) -> Capacity:
        """What there is."""
        kv_tokens = (self._pool.num_gpu_blocks - 1) * self._block_tokens if self._one_kind else None
        return Capacity(self._slots, kv_tokens, self._block_tokens)

    def free_tokens(self) -> int:
        """KV tokens that are free, those of a prefix that nobody runs with among them."""
        free: int = self._pool.get_num_free_blocks() * self._block_tokens
        return free

    def used_tokens(self) -> int:
        """KV tokens that are taken, a prefix that several hold counted once."""
        used: int = (self._pool.num_gpu_blocks - 1) * self._block_tokens - self.free_tokens()
        return used

    def resume(self, request: Any) -> Resume:
        """What a running request's resume would take."""
        if not self._one_kind:
            return Resume(request.num_computed_tokens, 0, 0)
        blocks = self._manager.get_blocks(request.request_id).blocks[0]
        own = sum(block.ref_cnt == 1 for block in blocks)
        full = request.num_computed_tokens // self._block_tokens * self._block_tokens
        if self._is_offloaded:
            return Resume(own * self._block_tokens, 0, full)
        return Resume(own * self._block_tokens, full if self._manager.enable_caching else 0, 0)
