"""What holds of every engine after every step, and once nothing is left, whatever its scheduler decided."""

from collections.abc import Iterable
from typing import Any

from engine_world import Ask, World
from vllm.v1.request import RequestStatus

WAITING_QUEUES = ("waiting", "skipped_waiting", "kv_holding_waiting")
"""Of all versions; one of them has two of these."""


def queues(scheduler: Any) -> list[Any]:
    """Those that this version has, and that hold anyone: ours has one that only passes on."""
    return [queue for name in WAITING_QUEUES if (queue := getattr(scheduler, name, None)) is not None and len(queue)]


def after_step(world: World) -> None:
    """Each live request is in one queue and every block in one place."""
    scheduler = world.scheduler
    running = [request.request_id for request in scheduler.running]
    waiting = [request.request_id for queue in queues(scheduler) for request in queue]
    assert sorted(running + waiting) == sorted(scheduler.requests), "a request is in no queue, or in two"
    assert all(request.status == RequestStatus.RUNNING for request in scheduler.running)
    assert all(scheduler.requests[name].status != RequestStatus.RUNNING for name in waiting)
    assert sum(map(len, queues(scheduler))) == len(waiting), "a queue's length is not what it holds"
    assert len(running) <= world.shape.slots
    live = {ask.name for ask in world.asked.values() if ask.ended is None}
    assert live == set(scheduler.requests), "the engine and its clients disagree on what runs"
    blocks_add_up(world)
    ours_did_not_fail(world)
    says_what_it_should(ask for ask in world.asked.values() if ask.ended is None)


def says_what_it_should(asks: Iterable[Ask]) -> None:
    """So far; what a grammar leaves is not known beforehand."""
    for ask in asks:
        if not ask.grammar:
            assert ask.tokens == ask.should_say[: len(ask.tokens)], f"{ask.name} says what it should not"


def ours_did_not_fail(world: World) -> None:
    """A failure of our scheduler's is served first come, first served, and would not be seen otherwise."""
    ours = getattr(world.scheduler, "sagesched", None)
    assert ours is None or not ours.counters.total("fallback_steps", "error"), ours.counters.totals


def blocks_add_up(world: World) -> None:
    """A block is free, or belongs to the requests whose tables name it, as often as it counts."""
    manager = world.scheduler.kv_cache_manager
    pool = manager.block_pool
    owners: dict[int, int] = {}
    for name in world.scheduler.requests:
        for block in manager.get_block_ids(name)[0]:
            owners[block] = owners.get(block, 0) + 1
    owners.pop(pool.null_block.block_id, None)
    for block in pool.blocks:
        if not block.is_null:
            assert block.ref_cnt == owners.get(block.block_id, 0), f"block {block.block_id} counts wrongly"
    assert pool.get_num_free_blocks() == world.shape.blocks - len(owners), "a block is neither free nor owned"


def at_end(world: World) -> None:
    """Everything ended with all its tokens, and every block came back."""
    assert not world.scheduler.requests
    assert not world.scheduler.running
    assert not any(queues(world.scheduler))
    assert world.scheduler.kv_cache_manager.block_pool.get_num_free_blocks() == world.shape.blocks
    ours = getattr(world.scheduler, "sagesched", None)
    assert ours is None or len(ours.order) == 0, "our order still holds requests that ended"
    says_what_it_should(world.asked.values())
    for ask in world.asked.values():
        assert ask.ended is not None, f"{ask.name} never ended"
        if not ask.aborted and not ask.grammar:
            assert ask.tokens == ask.should_say, f"{ask.name} lost or made up tokens"


def drain(world: World, limit: int = 5_000) -> None:
    """Step until nothing is left, with the laws after every step and at the end. A bound that no order can need."""
    for _ in range(limit):
        if not world.busy():
            break
        world.step()
        after_step(world)
    assert not world.busy(), f"still busy after {limit} steps"
    # One step more, for the runner hears of what finished with the next.
    at_end(world)
