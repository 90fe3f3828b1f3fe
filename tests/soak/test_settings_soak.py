"""Settings swapped, poisoned, half written a thousand times under load. SOAK_SWAPS and SOAK_SEED scale and vary it."""

import asyncio
import json
import os
import time
from pathlib import Path

import pytest
import settings_run as run

SWAPS = int(os.environ.get("SOAK_SWAPS", "1000"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
BLIND_IN_A_ROUND = 8
CLIENTS = 24
SECONDS = 300.0

pytestmark = [pytest.mark.soak, pytest.mark.timeout(SECONDS + 60)]


async def test_a_thousand_swaps_under_load_lose_no_request_and_no_settings(tmp_path):
    began = time.monotonic()
    print(f"settings soak: seed {SEED}", flush=True)
    async with run.stage(tmp_path, SEED) as stage:
        clients = [asyncio.create_task(stage.load.client()) for _ in range(CLIENTS)]
        while stage.mount.swaps.total() < SWAPS:
            for _ in range(BLIND_IN_A_ROUND):
                await stage.blind()
            await stage.good_one()
            await stage.look_at_the_order()
            served = stage.load.ended.total()
            await stage.bad_one()
            assert await served_since(stage, served), "serving goes on"
        await stage.good_one()
        stage.load.stopping = True
        await asyncio.wait_for(asyncio.gather(*clients), 60)
        now = await stage.settings()
        async with stage.session.get(stage.sidecar.url + "/metrics") as answer:
            metrics = await answer.text()
        status = await stage.end()
    reloads = {
        line.split('"')[1]: int(float(line.split()[-1]))
        for line in metrics.splitlines()
        if line.startswith("sagesched_config_reload_total{")
    }
    report = {
        "swaps": dict(stage.mount.swaps),
        "reloads": reloads,
        "requests": dict(stage.load.ended),
        "orders_seen": stage.ordered,
        "seconds": round(time.monotonic() - began, 1),
        "seed": SEED,
    }
    print(json.dumps(report, indent=2), flush=True)
    Path("build").mkdir(exist_ok=True)
    Path("build/settings_soak.json").write_text(json.dumps(report, indent=2) + "\n")

    assert set(stage.load.ended) == {"answered"}, stage.load.ended
    assert stage.load.ended["answered"] > SWAPS
    assert now["digest"] == run.digest(stage.last_good)
    infos = [line for line in metrics.splitlines() if line.startswith("sagesched_config_info{")]
    assert len(infos) == 1
    assert now["digest"] in infos[0]
    rounds = SWAPS // (BLIND_IN_A_ROUND + 2)
    assert reloads["applied"] >= rounds
    assert reloads.get("refused", 0) + reloads.get("unreadable", 0) >= rounds
    assert set(reloads) <= {"applied", "unchanged", "refused", "unreadable"}
    assert stage.ordered > rounds / 4
    assert len(stage.digests_used()) > rounds
    assert stage.digests_used() <= stage.good_digests, "settings were used that nobody wrote"
    assert stage.wrong_in_log() == []
    assert status == 0


async def served_since(stage, before):
    async with asyncio.timeout(20):
        while stage.load.ended.total() <= before:
            await asyncio.sleep(0.005)
    return True
