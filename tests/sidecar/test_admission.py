"""One gate, two doors: what a visit does, whichever door opened it."""

import asyncio

import numpy as np
import pytest
from gate_world import DIMENSIONS, DONE
from hall import Hall, Pages

from sagesched.request import Outcome
from sagesched_sidecar.gate import Refused

ENDS = {
    "finish": lambda visit: visit.finish(DONE),
    "leave": lambda visit: visit.leave(3),
    "unmeasured": lambda visit: visit.leave(3, "unmeasured"),
    "fail": lambda visit: visit.fail(),
}


@pytest.mark.parametrize("second", ENDS)
@pytest.mark.parametrize("first", ENDS)
async def test_the_first_end_counts_and_no_other(first, second):
    hall = Hall()
    visit = hall.visit("r")
    await visit.enter()
    ENDS[first](visit)
    seen = hall.ended()
    assert sum(seen.values()) == 1
    ENDS[second](visit)
    assert hall.ended() == seen
    assert len(hall.records) == 1
    hall.world.assert_empty()


async def test_what_history_learns_is_written_and_awaitable():
    journal = Pages()
    hall = Hall(journal)
    visit = hall.visit("r")
    await visit.enter()
    await visit.settle()
    visit.finish(Outcome(output_tokens=7))
    assert journal.written == [("r", Outcome(output_tokens=7))]
    assert not visit.written.done()
    visit.written.set_result(None)
    await visit.written


async def test_a_visit_that_taught_nothing_waits_for_no_other_s_write():
    journal = Pages()
    hall = Hall(journal, engine={"slots": 2})
    first, second = hall.visit("first"), hall.visit("second")
    await first.enter()
    await second.enter()
    await first.settle()
    first.finish(DONE)
    second.finish(DONE)
    assert (first.written is None, second.written) == (False, None)
    assert [which for which, _ in journal.written] == ["first"]


async def test_what_left_is_written_as_at_least_so_long():
    journal = Pages()
    hall = Hall(journal)
    visit = hall.visit("r")
    await visit.enter()
    await visit.settle()
    visit.leave(5)
    assert journal.written == [("r", Outcome(output_tokens=5, censored=True))]


async def test_a_journal_that_fails_costs_no_request():
    hall = Hall(Pages(broken=True))
    visit = hall.visit("r")
    await visit.enter()
    await visit.settle()
    visit.finish(DONE)
    assert hall.ended() == {"answered": 1}
    assert visit.written is None
    assert hall.value("fallback_total", reason="journal-error") == 1


async def test_an_embedding_that_the_client_sent_is_the_one_that_counts():
    hall = Hall()
    given = np.eye(DIMENSIONS, dtype=np.float32)[2]
    visit = hall.visit("r", text=None, embedding=given)
    await visit.enter()
    await visit.settle()
    assert visit.place.ticket.embedding is given
    visit.finish(DONE)
    assert hall.value("fallback_total", reason="body-undecodable") is None


async def test_a_refused_visit_leaves_nothing_behind():
    hall = Hall(queue={"maxRequests": 1})
    runs, waits, refused = hall.visit("runs"), hall.visit("waits"), hall.visit("refused")
    await runs.enter()
    waiting = asyncio.ensure_future(waits.enter())
    await asyncio.sleep(0)
    with pytest.raises(Refused, match="queue-full"):
        await refused.enter()
    runs.finish(DONE)
    await waiting
    waits.finish(DONE)
    assert hall.records.get("refused") is None
    hall.world.assert_empty()


async def test_what_is_embedded_after_its_end_is_learnt_and_written():
    journal = Pages()
    hall = Hall(journal, blocking=True)
    visit = hall.visit("r")
    await visit.enter()
    visit.begun()
    visit.finish(DONE)
    taught = asyncio.ensure_future(visit.taught())
    async with asyncio.timeout(5):
        while not journal.writes:
            await asyncio.sleep(0.001)
    assert not taught.done()
    journal.writes[0].set_result(None)
    assert await taught
    assert journal.written == [("r", DONE)]
