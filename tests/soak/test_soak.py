"""Ten thousand requests under faults: `make test-soak`. SOAK_REQUESTS, SOAK_SECONDS and SOAK_SEED scale and vary it."""

import json
import os
import time
from pathlib import Path

import fault_clients as clients
import fault_run as faults
import pytest

REQUESTS = int(os.environ.get("SOAK_REQUESTS", "10000"))
SECONDS = float(os.environ.get("SOAK_SECONDS", "330"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
WARM_UP = min(2000, REQUESTS // 5)
RESTARTS_PER_THOUSAND = 1.2
MAX_GROWTH_MIB = 12.0
"""From the end of the warm-up to the end of the run. A leak of 2 kB a request would be 16 MiB."""

pytestmark = [pytest.mark.soak, pytest.mark.timeout(SECONDS + 90)]


def say(what):
    print(what, flush=True)


async def test_ten_thousand_requests_under_faults(tmp_path):
    began = time.monotonic()
    async with faults.stage(tmp_path, clients.MAX_BODY_BYTES) as stage:
        run = faults.Run(clients, stage, SEED, at_once=100, burst=250)
        await run.requests(WARM_UP, round(WARM_UP / 1000 * RESTARTS_PER_THOUSAND), began + SECONDS, say)
        assert await faults.until(stage.at_rest), await stage.metrics()
        warm = {"memory_mib": stage.sidecar.memory_mib(), "open_files": stage.sidecar.open_files()}
        rest = REQUESTS - WARM_UP
        await run.requests(rest, round(rest / 1000 * RESTARTS_PER_THOUSAND), began + SECONDS, say)
        at_rest = await faults.until(stage.at_rest)
        samples = await stage.metrics()
        after = {"memory_mib": stage.sidecar.memory_mib(), "open_files": stage.sidecar.open_files()}
        status = await stage.end()
    tally = run.tally
    kinds = {word: tally.starting(word) for word in ("answered", "refused", "engine", "left", "lost")}
    report = {"sent": run.sent, "ended": kinds, "how": dict(sorted(tally.items())), "restarts": stage.restarts}
    report |= {"warm": warm, "after": after, "seconds": round(time.monotonic() - began, 1), "seed": SEED}
    say(json.dumps(report, indent=2))
    Path("build").mkdir(exist_ok=True)
    Path("build/soak.json").write_text(json.dumps(report, indent=2) + "\n")

    assert run.sent == REQUESTS, f"only {run.sent} in {SECONDS} s; SOAK_SECONDS gives it more"
    assert kinds["lost"] == 0, tally
    assert sum(kinds.values()) == tally.total() == REQUESTS
    assert min(kinds[word] for word in ("answered", "refused", "engine", "left")) > REQUESTS / 50
    assert tally["refused queue-full"] > 0
    assert at_rest, samples
    for reason in {how.removeprefix("refused ") for how in tally if how.startswith("refused ")}:
        assert samples[f'sagesched_rejected_total{{reason="{reason}"}}'] >= tally[f"refused {reason}"]
    assert stage.recoveries == stage.restarts > 0
    assert after["memory_mib"] - warm["memory_mib"] < MAX_GROWTH_MIB
    assert after["open_files"] <= warm["open_files"] + 5
    assert stage.wrong_in_log() == []
    assert status == 0
