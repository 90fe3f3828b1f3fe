"""A thousand requests under faults: each ends in exactly one way, and nothing is left behind."""

import time

import fault_clients as clients
import fault_run as faults

REQUESTS = 1000
SEED = 7


async def test_every_request_ends_in_exactly_one_way(tmp_path):
    async with faults.stage(tmp_path, clients.MAX_BODY_BYTES) as stage:
        run = faults.Run(clients, stage, SEED, at_once=80, burst=200)
        await run.requests(REQUESTS, restarts=2, deadline_s=time.monotonic() + 60, say=lambda _: None)
        tally = run.tally
        assert tally.starting("lost") == 0, tally
        kinds = {word: tally.starting(word) for word in ("answered", "refused", "engine", "left")}
        assert sum(kinds.values()) == tally.total() == run.sent == REQUESTS
        assert min(kinds.values()) > 20, tally
        assert {"refused queue-full", "refused body-too-large", "refused bad-http"} <= set(tally)
        assert await faults.until(stage.at_rest), await stage.metrics()
        assert stage.recoveries == stage.restarts == 2
        status = await stage.end()
        assert stage.wrong_in_log() == []
        assert status == 0
