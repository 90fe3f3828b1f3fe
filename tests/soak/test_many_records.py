"""Many records of fifty tenants on a real Qdrant server: what a start takes, and that the window stays what it is."""

import os
import random
import time

import numpy as np
import pytest
from store_records import record

from sagesched.gittins import Stopping
from sagesched.ranking import Ranking
from sagesched.settings import decode
from sagesched_sidecar.history_follower import learnable
from sagesched_store.apart import StoreApart
from sagesched_store.loading import newest_window
from sagesched_store.record import Space

pytestmark = [pytest.mark.soak, pytest.mark.qdrant, pytest.mark.timeout(7200)]
ROWS = int(os.environ.get("ROWS", "50000"))
TENANTS, WINDOW, BATCH = 50, 10_000, 250
SPACE = Space("many-1", 128)


def test_a_start_is_quick_and_every_tenant_has_its_part(collections):
    collections.make(SPACE)
    rng, noise = random.Random(1), np.random.default_rng(1)
    store = StoreApart(collections.writer(), SPACE, 10_000_000)
    begun_s = time.perf_counter()
    for start in range(0, ROWS, BATCH):
        vectors = noise.normal(size=(BATCH, SPACE.dimensions)).astype("<f4")
        store.append(
            [
                # One tenant in fifty is seldom there, and one sends half of all.
                record(number, f"t{min(TENANTS - 1, int(rng.paretovariate(0.5)))}", SPACE, embedding=vector.tobytes())
                for number, vector in zip(range(start, start + BATCH), vectors, strict=False)
            ]
        )
    wrote_s = time.perf_counter() - begun_s
    begun_s = time.perf_counter()
    found = newest_window(store, WINDOW)
    loaded_s = time.perf_counter() - begun_s
    counts = store.tenants()
    ranking = Ranking(decode({}), stopping=Stopping.NEVER, dimensions=SPACE.dimensions)
    for one in found:
        ranking.learn(*learnable(one))
    window = ranking.predictor.window
    share = WINDOW // 2 // len(counts)
    by_tenant = {
        tenant: sum(window.count(group) for group in window._groups if group.tenant == tenant) for tenant in counts
    }
    assert len(window) == WINDOW == window.capacity
    assert all(by_tenant[tenant] >= min(share, count) for tenant, count in counts.items())
    facts = {
        "rows": ROWS,
        "tenants": len(counts),
        "us_a_row": round(1e6 * wrote_s / ROWS),
        "load_s": round(loaded_s, 2),
    }
    print(facts | {"least": min(by_tenant.values()), "most": max(by_tenant.values())})
    store.close()
