"""Eight sidecars and a real Qdrant server: the last one to come predicts as well as the others, and no death of any of
them, nor of the server, loses more than was under way."""

import asyncio
import json
import os
import time

import pytest
import real_qdrant
from sidecar_fleet import Member

from sagesched.embed import open_embedder
from sagesched.settings import Settings
from sagesched_sim.workload import sources
from sagesched_store.record import Space
from sagesched_store.server import ServerStore

pytestmark = [pytest.mark.soak, pytest.mark.qdrant, pytest.mark.timeout(1500)]
LEARNT, HELD_OUT = 2100, 500
OUTAGE_SECONDS = float(os.environ.get("OUTAGE_SECONDS", "10"))


async def serve(member, exchanges, begin):
    """Report these, one after the other, with a prediction of each; where it is down the rest is not asked of it."""
    for number, one in enumerate(exchanges, begin):
        if not member.running:
            return
        await member.predict(one.prompt)
        await member.report(f"r{number}", one.prompt, one.output_tokens)


async def serve_all(members, exchanges, begin):
    """Each its share, four at a time."""
    size = len(exchanges) // len(members) + 1
    streams = []
    for place, member in enumerate(members):
        share = exchanges[place * size : (place + 1) * size]
        quarter = len(share) // 4 + 1
        streams += [
            serve(member, share[at : at + quarter], begin + place * size + at) for at in range(0, len(share), quarter)
        ]
    await asyncio.gather(*streams)


async def test_eight_sidecars_share_what_they_learn_and_survive_one_another(own_qdrant, tmp_path):
    embedder = open_embedder(Settings().embedding)
    space = Space(embedder.name, embedder.dimensions)
    shared = real_qdrant.Collections(own_qdrant.url)
    shared.make(space)
    file = tmp_path / "settings.json"
    server = {"url": own_qdrant.url, "collectionPrefix": shared.place.prefix}
    file.write_text(json.dumps({"history": {"store": "server", "server": server}}))
    traffic = sources.load("topics", 1, history=LEARNT, requests=HELD_OUT)
    members = [Member(file) for _ in range(7)]
    for member in members:
        await member.start()
    third = LEARNT // 3
    await serve_all(members, traffic.history[:third], 0)

    serving = asyncio.create_task(serve_all(members, traffic.history[third : 2 * third], third))
    await asyncio.sleep(0.5)
    await members[3].kill()
    own_qdrant.kill()
    await serving
    await asyncio.sleep(OUTAGE_SECONDS)
    own_qdrant.start()
    await members[3].start()
    await serve_all(members, traffic.history[2 * third :], 2 * third)

    answered = sum(len(member.reported) for member in members)
    unanswered = sum(len(member.unanswered) for member in members)
    store = ServerStore(shared.writer(), space, 1_000_000)
    async with asyncio.timeout(120):
        while store.count() < answered:
            await asyncio.sleep(0.5)
    await asyncio.sleep(3)
    lost = answered + unanswered - store.count()
    assert 0 <= lost <= unanswered
    assert sum(member.failed for member in members) == 0, "no request was lost but those of the killed one"

    last = Member(file)
    await last.start()
    begun_s = time.monotonic()
    own = await last.crps_of(traffic.measured)
    took_s = time.monotonic() - begun_s
    others = [await member.crps_of(traffic.measured) for member in members]
    lengths = [float(one.output_tokens) for one in traffic.history]
    mean = sum(lengths) / len(lengths)
    blind = sum(abs(one.output_tokens - mean) for one in traffic.measured) / HELD_OUT
    skills = [1 - score / blind for score in others]
    print(
        {
            "records": store.count(),
            "lost": lost,
            "unanswered": unanswered,
            "skill_of_the_last": round(1 - own / blind, 4),
            "skill_of_the_others": round(sum(skills) / 7, 4),
            "seconds_for_500_predictions": round(took_s, 2),
        }
    )
    assert 1 - own / blind >= 0.95 * sum(skills) / 7
    for member in [*members, last]:
        await member.end()
