"""The KV cache as a count of equal blocks; which block holds what matters to neither time nor order."""


class BlockPool:
    """`total` blocks of `block_size` tokens each. Never more blocks out than exist, never more back than went out."""

    __slots__ = ("block_size", "free", "total")

    def __init__(self, total: int, block_size: int) -> None:
        if total < 1 or block_size < 1:
            raise ValueError(f"kv blocks: {total} blocks of {block_size} tokens; both must be at least 1")
        self.total = total
        self.block_size = block_size
        self.free = total

    @property
    def used(self) -> int:
        """Blocks held by sequences."""
        return self.total - self.free

    @property
    def capacity_tokens(self) -> int:
        """Tokens that fit in all the blocks."""
        return self.total * self.block_size

    def blocks_for(self, tokens: int) -> int:
        """Blocks that `tokens` tokens of one sequence need."""
        return -(-tokens // self.block_size)

    def take(self, blocks: int) -> bool:
        """Take `blocks` blocks; False, and nothing taken, where fewer are free."""
        if blocks > self.free:
            return False
        self.free -= blocks
        return True

    def give(self, blocks: int) -> None:
        """Give `blocks` blocks back."""
        if self.free + blocks > self.total:
            raise ValueError(f"kv blocks: {blocks} given back, but only {self.used} are out")
        self.free += blocks
