"""History that outlives the sidecar: what the window learns is what the store gets, and what the next start loads."""

import asyncio
import json

import numpy as np
import pytest

CHAT = {"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "zanzibar in words"}]}
STOP = {"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": 40, "completion_tokens": 6}}
CUT = {"choices": [{"finish_reason": "length"}], "usage": {"prompt_tokens": 41, "completion_tokens": 50}}


def script(fakes, answer):
    body = json.dumps(answer).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    return fakes.Script([head + body])


@pytest.fixture
def settings(tmp_path):
    return {"history": {"store": "embedded", "path": str(tmp_path / "history"), "windowRows": 50}}


async def ask(client, sidecar, **fields):
    return await client.ask(sidecar, "POST", "/v1/chat/completions", json.dumps(CHAT | fields).encode())


async def status(client, sidecar):
    return json.loads((await client.ask(sidecar, "GET", "/sagesched/status")).body)


def window_of(sidecar):
    window = sidecar.gate.ranking.predictor.window
    rows = len(window)
    return {
        "vectors": window._vectors[:, :rows].tolist(),
        "classes": window.length_class[:rows].tolist(),
        "tokens": window.output_tokens[:rows].tolist(),
        "censored": window.censored[:rows].tolist(),
        "asked": window.asked_number[:rows].tolist(),
        "tools": window.tools[:rows].tolist(),
        "groups": sorted(map(str, window._groups)),
    }


async def test_the_next_sidecar_has_the_window_of_the_last(start, client, fakes, settings, tmp_path):
    answers = iter([STOP, CUT, STOP, STOP])
    _, one = await start(lambda seen: script(fakes, next(answers)), settings)
    await ask(client, one)
    await ask(client, one, model="another", tools=[{}])
    await ask(client, one, messages=[{"role": "user", "content": "write 300 words about quartz"}])
    await one.history.settled()
    wanted = window_of(one)
    assert (len(wanted["tokens"]), wanted["censored"]) == (3, [False, True, False])
    await one.history._writer.close()  # as at the end of the process
    _, two = await start(lambda seen: script(fakes, next(answers)), settings)
    assert window_of(two) == wanted
    assert (await status(client, two))["history"] == {
        "store": "embedded",
        "path": settings["history"]["path"],
        "rows": 500,
        "trouble": "",
    }
    await ask(client, two)
    await two.history.settled()
    metrics = (await client.ask(two, "GET", "/metrics")).body.decode()
    assert "sagesched_history_loaded_rows 3.0" in metrics
    assert "sagesched_history_writes_total 1.0" in metrics, "what was loaded is not written again"
    everything = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert b"zanzibar" not in everything
    assert b"quartz" not in everything


async def test_a_folder_that_another_holds_costs_no_request(start, client, fakes, settings):
    _, one = await start(lambda seen: script(fakes, STOP), settings)
    await ask(client, one)
    await one.history.settled()
    _, two = await start(lambda seen: script(fakes, STOP), settings)
    assert (await ask(client, two)).status == 200
    assert (await status(client, two))["history"]["trouble"] == "locked"
    assert window_of(two)["tokens"] == [6.0], "it learns all the same"
    async with asyncio.timeout(10):
        while (
            'write_dropped_total{reason="locked"} 1.0' not in (await client.ask(two, "GET", "/metrics")).body.decode()
        ):
            await asyncio.sleep(0.01)


async def test_in_memory_nothing_is_written_and_nothing_waits(start, client, fakes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, sidecar = await start(lambda seen: script(fakes, STOP))
    await ask(client, sidecar)
    await sidecar.history.settled()
    assert (await status(client, sidecar))["history"] == {"store": "memory"}
    assert list(tmp_path.iterdir()) == []


async def test_what_is_not_learnt_is_not_stored(start, client, fakes, settings):
    settings["history"]["learn"] = False
    _, sidecar = await start(lambda seen: script(fakes, STOP), settings)
    await ask(client, sidecar)
    await sidecar.history.settled()
    assert "sagesched_history_writes_total 0.0" in (await client.ask(sidecar, "GET", "/metrics")).body.decode()


def test_vectors_come_back_bit_for_bit():
    from sagesched.request import Outcome, Request
    from sagesched_sidecar.durable_history import _learnable
    from sagesched_store.record import record_of

    vector = np.random.default_rng(3).standard_normal(26).astype(np.float32)
    request = Request(id="r", model="m", tenant="t", prompt_tokens=9)
    record = record_of(request, vector.tobytes(), "letters", Outcome(output_tokens=4, censored=True), 1.0)
    again, back, outcome = _learnable(record)
    assert (back == vector).all()
    assert (again.model, again.tenant, again.prompt_tokens) == ("m", "t", 9)
    assert outcome == Outcome(output_tokens=4, censored=True)
