"""A thousand requests under faults: each ends in exactly one way, and nothing is left behind."""

import importlib.util
import sys
import time
from pathlib import Path

REQUESTS = 1000
SEED = 7


def load(name):
    known = sys.modules.get(name)
    if known is None:
        path = Path(__file__).parents[1] / "fakes" / f"{name}.py"
        spec = importlib.util.spec_from_file_location(name, path)
        known = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(known)
    return known


clients, faults = load("fault_clients"), load("fault_run")


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
