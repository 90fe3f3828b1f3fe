"""The model runner without a model: it keeps each request's state as vLLM's own runner does, and believes nothing.

It follows GPUModelRunner: the first of its two kinds keeps a preempted request's state and is told its tokens anew, the
second one forgets it and is given it as a new one (`prefill_token_ids`). What the real one would assert, or silently
compute wrongly, raises BrokenStep here, with the request and the position.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from chain_model import extend, sample


class BrokenStep(AssertionError):
    """A step that no runner could compute rightly."""


@dataclass
class Row:
    """One request, as the runner knows it."""

    tokens: list[int]
    prompt_tokens: int
    blocks: list[int]
    adapter: int
    computed: int
    links: list[int] = field(default_factory=list)
    """What the cache should hold for `tokens`."""

    def follow(self) -> None:
        """Bring `links` up to `tokens`."""
        if len(self.links) < len(self.tokens):
            digest = self.links[-1] if self.links else extend(17, self.adapter)
            for token in self.tokens[len(self.links) :]:
                digest = extend(digest, token)
                self.links.append(digest)


class FakeRunner:
    """`block_tokens`: positions of a block. `second_kind`: as vLLM's newer runner. `overlaps`: async scheduling."""

    def __init__(self, block_tokens: int, *, second_kind: bool, overlaps: bool, max_adapters: int) -> None:
        self.rows: dict[str, Row] = {}
        self.steps = 0
        self.computed_tokens = 0
        self._block_tokens, self._second_kind, self._overlaps = block_tokens, second_kind, overlaps
        self._max_adapters = max_adapters
        self._slots: dict[tuple[int, int], int] = {}
        self._batch: set[str] = set()
        self._scheduled: dict[str, int] = {}

    def execute(self, step: Any) -> None:
        """Take a SchedulerOutput in, and compute its positions."""
        self._leave(step)
        for new in step.scheduled_new_reqs:
            self._enter(new)
        for i, request in enumerate(step.scheduled_cached_reqs.req_ids):
            self._proceed(step.scheduled_cached_reqs, i, request)
        self._copy_blocks(getattr(step, "kv_cache_block_copies", None) or ())
        self._batch = set(step.num_scheduled_tokens)
        self._scheduled = dict(step.num_scheduled_tokens)
        self._check_adapters()
        for request, tokens in self._scheduled.items():
            self._forward(request, tokens)
        self.steps += bool(self._scheduled)

    def sampled(self, allowed: dict[str, Sequence[int]]) -> dict[str, list[int]]:
        """What the last step generated, by request in the step's order; none where its prompt is not yet computed."""
        output: dict[str, list[int]] = {}
        for request in self._scheduled:
            row = self.rows[request]
            output[request] = []
            if row.computed == len(row.tokens):
                token = sample(row.links[-1], allowed.get(request))
                row.tokens.append(token)
                output[request].append(token)
        self._scheduled = {}
        return output

    def _leave(self, step: Any) -> None:
        gone = set(step.finished_req_ids)
        if self._second_kind:
            gone |= step.preempted_req_ids or set()
        for request in gone:
            self.rows.pop(request, None)
            self._batch.discard(request)
        kept = set(step.num_scheduled_tokens) - set(step.scheduled_cached_reqs.resumed_req_ids)
        self._batch &= kept

    def _enter(self, new: Any) -> None:
        tokens = list(new.prefill_token_ids if self._second_kind else new.prompt_token_ids)
        if not self._second_kind and new.req_id in self.rows:
            raise BrokenStep(f"{new.req_id} is new, but the runner has it already")
        self.rows[new.req_id] = Row(
            tokens=tokens,
            prompt_tokens=len(new.prompt_token_ids),
            blocks=list(new.block_ids[0]),
            adapter=new.lora_request.lora_int_id if new.lora_request else 0,
            computed=new.num_computed_tokens,
        )

    def _proceed(self, cached: Any, i: int, request: str) -> None:
        if request not in self.rows:
            raise BrokenStep(f"{request} goes on, but the runner does not have it")
        row, blocks = self.rows[request], cached.new_block_ids[i]
        row.computed = cached.num_computed_tokens[i]
        known = row.prompt_tokens + cached.num_output_tokens[i]
        if request in cached.resumed_req_ids:
            row.blocks = list(blocks[0])
        elif blocks is not None:
            row.blocks.extend(blocks[0])
        if request not in self._batch and self._overlaps and not self._second_kind and known > row.prompt_tokens:
            # KeyError where the scheduler believes that it was in the step before: so it is in the real one.
            row.tokens[row.prompt_tokens :] = cached.all_token_ids[request][row.prompt_tokens : known]
            row.links.clear()
        elif known < len(row.tokens):
            del row.tokens[known:]
            del row.links[known:]

    def _copy_blocks(self, copies: Sequence[Any]) -> None:
        for copy in copies:
            for offset in range(self._block_tokens):
                self._slots[copy.dst_block_id, offset] = self._slots.get((copy.src_block_id, offset), -1)

    def _check_adapters(self) -> None:
        adapters = {self.rows[request].adapter for request in self._scheduled} - {0}
        if len(adapters) > self._max_adapters:
            raise BrokenStep(f"{len(adapters)} adapters in one step; {self._max_adapters} are loaded")

    def _slot(self, row: Row, position: int) -> tuple[int, int]:
        block, offset = divmod(position, self._block_tokens)
        if block >= len(row.blocks):
            raise BrokenStep(f"position {position} is beyond the {len(row.blocks)} blocks of its request")
        return row.blocks[block], offset

    def _forward(self, request: str, tokens: int) -> None:
        row = self.rows[request]
        row.follow()
        begin, end = row.computed, row.computed + tokens
        if end > len(row.tokens):
            raise BrokenStep(f"{request}: position {end - 1} is to be computed, {len(row.tokens)} tokens are known")
        for position in range(begin):
            if self._slots.get(self._slot(row, position)) != row.links[position]:
                raise BrokenStep(f"{request}: position {position} of {begin} is not what it computed")
        for position in range(begin, end):
            self._slots[self._slot(row, position)] = row.links[position]
        row.computed = end
        self.computed_tokens += tokens
