"""Sidecars that share a real Qdrant server: they learn from one another, and its trouble costs no request."""

import asyncio
import json

import pytest
import real_qdrant

from sagesched_sidecar import durable_history
from sagesched_store.place import open_store
from sagesched_store.record import Space
from sagesched_store.server import ServerStore

pytestmark = [pytest.mark.qdrant, pytest.mark.timeout(300)]
SPACE = Space("letters", 26)
STOP = {"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": 40, "completion_tokens": 6}}


def script(fakes):
    body = json.dumps(STOP).encode()
    return fakes.Script(
        [b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body]
    )


def settings(collections, **history):
    server = {"url": collections.place.url, "collectionPrefix": collections.place.prefix, "pullSeconds": 0.1}
    return {"history": {"store": "server", "server": server | {"timeoutSeconds": 5}, "windowRows": 50} | history}


@pytest.fixture
def in_process(monkeypatch):
    """The store in this process: a second or two less for each sidecar, and all else as it is."""
    monkeypatch.setattr(durable_history, "StoreApart", open_store)


async def ask(client, sidecar, text="zanzibar"):
    body = {"model": "m", "messages": [{"role": "user", "content": text}]}
    reply = await client.ask(sidecar, "POST", "/v1/chat/completions", json.dumps(body).encode())
    assert reply.status == 200


async def until(true):
    async with asyncio.timeout(100):
        while not true():
            await asyncio.sleep(0.05)


def rows(sidecar):
    return len(sidecar.gate.ranking.predictor.window)


def dropped(sidecar):
    metric = sidecar.history._metrics.dropped
    return sum(sample.value for one in metric.collect() for sample in one.samples if sample.name.endswith("_total"))


async def test_what_one_learns_the_others_know_and_the_next_starts_with_it(start, client, fakes, collections):
    collections.make(SPACE)
    _, one = await start(lambda seen: script(fakes), settings(collections))
    _, two = await start(lambda seen: script(fakes), settings(collections))
    for _ in range(3):
        await ask(client, one)
    await ask(client, two)
    await until(lambda: rows(one) == rows(two) == 4)
    _, three = await start(lambda seen: script(fakes), settings(collections))
    assert rows(three) == 4
    await asyncio.sleep(0.5)
    assert (rows(one), rows(two), rows(three)) == (4, 4, 4), "each record once, one's own among them"
    assert ServerStore(collections.writer(), SPACE, 100).count() == 4


@pytest.mark.usefixtures("in_process")
async def test_histories_of_two_namespaces_stay_apart(start, client, fakes, collections):
    collections.make(SPACE)
    _, one = await start(lambda seen: script(fakes), settings(collections, tenant="blue"))
    _, two = await start(lambda seen: script(fakes), settings(collections, tenant="green"))
    await ask(client, one)
    await until(lambda: rows(two) == 1)
    assert ServerStore(collections.writer(), SPACE, 100).tenants() == {"blue": 1}
    await ask(client, two)
    asked = two.gate.ranking.predictor.window
    assert {group.tenant: asked.count(group) for group in asked._groups} == {"blue": 1, "green": 1}


@pytest.mark.usefixtures("in_process")
async def test_a_tenant_deleted_in_the_store_is_forgotten_by_all(start, client, fakes, collections):
    collections.make(SPACE)
    _, one = await start(lambda seen: script(fakes), settings(collections, tenant="blue"))
    _, two = await start(lambda seen: script(fakes), settings(collections, tenant="green"))
    await ask(client, one)
    await ask(client, two)
    await until(lambda: rows(one) == rows(two) == 2)
    assert ServerStore(collections.writer(), SPACE, 100).delete_tenant("blue") == 1
    await until(lambda: rows(one) == rows(two) == 1)
    assert {group.tenant for group in one.gate.ranking.predictor.window._groups} == {"green"}


@pytest.mark.usefixtures("in_process")
async def test_a_server_that_dies_costs_no_request_and_no_record(start, client, fakes, own_qdrant):
    mine = real_qdrant.Collections(own_qdrant.url)
    mine.make(SPACE)
    _, sidecar = await start(lambda seen: script(fakes), settings(mine))
    await ask(client, sidecar)
    await sidecar.history.settled()
    own_qdrant.kill()
    for _ in range(5):
        await ask(client, sidecar)
    await until(lambda: sidecar.history.status()["trouble"] == "unreachable")
    for _ in range(5):
        await ask(client, sidecar)
    own_qdrant.start()
    await until(lambda: ServerStore(mine.writer(), SPACE, 100).count() == 11)
    await until(lambda: not sidecar.history.status()["trouble"])
    assert dropped(sidecar) == 0
    assert rows(sidecar) == 11


@pytest.mark.usefixtures("in_process")
async def test_one_that_starts_without_the_server_has_its_history_later(start, client, fakes, own_qdrant):
    mine = real_qdrant.Collections(own_qdrant.url)
    mine.make(SPACE)
    _, one = await start(lambda seen: script(fakes), settings(mine))
    await ask(client, one)
    await one.history.settled()
    own_qdrant.kill()
    _, two = await start(lambda seen: script(fakes), settings(mine))
    assert rows(two) == 0
    await ask(client, two)
    own_qdrant.start()
    await until(lambda: rows(two) == 2)


@pytest.mark.usefixtures("in_process")
async def test_without_a_collection_it_serves_and_says_what_is_missing(start, client, fakes, collections):
    _, sidecar = await start(lambda seen: script(fakes), settings(collections))
    await ask(client, sidecar)
    assert sidecar.history.status()["trouble"] == "no-collection"
    collections.make(SPACE)
    await until(lambda: ServerStore(collections.writer(), SPACE, 100).count() == 1)


@pytest.mark.usefixtures("in_process")
async def test_an_end_while_the_server_is_away_counts_what_is_lost(start, client, fakes, own_qdrant):
    mine = real_qdrant.Collections(own_qdrant.url)
    mine.make(SPACE)
    _, sidecar = await start(lambda seen: script(fakes), settings(mine))
    own_qdrant.kill()
    for _ in range(3):
        await ask(client, sidecar)
    await sidecar.history._writer.close()
    assert dropped(sidecar) == 3
