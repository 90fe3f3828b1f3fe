"""No tenant's neighbours come from another's history, whatever store it went through, and none after its deletion."""

import random

import numpy as np
import pytest
from store_records import record

from sagesched.gittins import Stopping
from sagesched.ranking import Ranking
from sagesched.request import Request
from sagesched.settings import decode
from sagesched_sidecar.history_follower import learnable
from sagesched_store.loading import newest_window
from sagesched_store.record import Space

SPACE = Space("letters-1", 4)
TENANTS = ["", "a", "b", "a/b", "b/a", "ä", "A"]


def loaded(store, rows):
    ranking = Ranking(decode({"history": {"windowRows": rows}}), stopping=Stopping.NEVER, dimensions=SPACE.dimensions)
    for one in newest_window(store, rows):
        ranking.learn(*learnable(one))
    return ranking


@pytest.mark.parametrize("seed", range(4))
def test_neighbours_and_lengths_are_one_s_own(open_store, seed):
    """Each tenant's lengths lie in a thousand of its own, and all prompts are alike: any other's would be seen."""
    rng = random.Random(seed)
    store = open_store(rows=rng.choice([40, 400]))
    alike = np.ones(4, dtype="<f4").tobytes()
    for number in range(200):
        tenant = rng.randrange(len(TENANTS))
        tokens = 1000 * tenant + rng.randrange(1, 900)
        fields = {"embedding": alike, "output_tokens": tokens, "model": rng.choice("mn"), "censored": False}
        store.append([record(number, TENANTS[tenant], **fields)])
    deleted = rng.choice(TENANTS)
    had = store.count(deleted)
    assert store.delete_tenant(deleted) == had
    ranking = loaded(store, rng.choice([30, 300]))
    seen = 0
    for place, tenant in enumerate(TENANTS):
        for model in "mn":
            prediction = ranking.predictor.predict(
                Request(id="r", model=model, tenant=tenant, prompt_tokens=9), np.full(4, 0.5, dtype=np.float32)
            )
            near = prediction.neighbours.output_tokens
            assert ((near > 1000 * place) & (near < 1000 * place + 900)).all()
            known = [level for level in prediction.levels if level.name != "prior"]
            own = [level.distribution.tokens for level in known]
            assert all(((tokens > 1000 * place) & (tokens < 1000 * place + 900)).all() for tokens in own)
            assert tenant != deleted or not near.size
            seen += near.size
    assert seen > 0
    after = None
    while True:
        page = store.page(after, 50)
        assert all(one.tenant != deleted for one in page.records), "no point of it is left"
        if (after := page.after) is None:
            break
