"""History that outlives the sidecar: what the window learns is what the store gets, and what the next start loads."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace

import numpy as np
import pytest

from sagesched.request import Outcome, Request
from sagesched_sidecar.history_follower import learnable
from sagesched_sidecar.history_writer import NotStoredError
from sagesched_store.record import record_of

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


@asynccontextmanager
async def process(url, *arguments):
    pipe, quiet = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
    command = [sys.executable, "-m", "sagesched_sidecar", "--upstream", url, "--port", "0", *arguments]
    child = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=quiet)
    try:
        async with asyncio.timeout(60):
            listening = json.loads(await child.stdout.readline())["listening"]
        yield SimpleNamespace(child=child, address=(listening["host"], listening["port"]))
    finally:
        if child.returncode is None:
            with suppress(ProcessLookupError):
                child.terminate()
        await child.wait()


async def metric(client, sidecar, name):
    text = (await client.ask(sidecar, "GET", "/metrics")).body.decode()
    return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"sagesched_{name} "))


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


async def test_a_killed_sidecar_s_successor_has_what_was_written(client, fakes, settings):
    history = settings["history"]
    command = ["--history-store", "embedded", "--history-path", history["path"]]
    async with fakes.RawUpstream(lambda seen: script(fakes, STOP)) as engine:
        async with process(engine.url, *command) as one:
            for _ in range(20):
                await ask(client, one)
            async with asyncio.timeout(20):
                while await metric(client, one, "history_writes_total") < 20:
                    await asyncio.sleep(0.01)
            one.child.kill()
        async with process(engine.url, *command) as two:
            assert await metric(client, two, "history_loaded_rows") == 20
            assert await metric(client, two, "history_points") == 20


async def test_the_death_of_the_store_s_process_costs_its_records_and_no_request(start, client, fakes, settings):
    _, sidecar = await start(lambda seen: script(fakes, STOP), settings)
    await ask(client, sidecar)
    await sidecar.history.settled()
    writer = sidecar.history._writer
    writer._line._store.process.kill()
    assert (await ask(client, sidecar)).status == 200
    with pytest.raises(NotStoredError, match="died"):
        await sidecar.history.settled()
    assert (await status(client, sidecar))["history"]["trouble"] == "died"
    writer._line.retry_at_s = 0.0  # ten seconds later
    assert (await ask(client, sidecar)).status == 200
    await sidecar.history.settled()
    assert writer._line._store.count() == 2
    assert (await status(client, sidecar))["history"]["trouble"] == ""
    assert window_of(sidecar)["tokens"] == [6.0] * 3


@pytest.mark.parametrize(
    ("flags", "field"),
    [
        (["--history-store", "embedded"], b"history.path: required"),
        (["--history-path", "/tmp"], b"history.path: has no effect"),
        (
            ["--history-store", "embedded", "--history-path", "/proc/none"],
            b"history.path: cannot be written to: /proc",
        ),
        (
            ["--history-store", "embedded", "--history-path", "/etc/hosts/x"],
            b"history.path: cannot be written to: /etc",
        ),
    ],
)
async def test_a_path_that_cannot_be_is_refused_before_a_port_opens(flags, field):
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, "-m", "sagesched_sidecar", "--upstream", "http://127.0.0.1:1", *flags]
    child = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    out, err = await child.communicate()
    assert (child.returncode, out) == (64, b"")
    assert field in err


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
    vector = np.random.default_rng(3).standard_normal(26).astype(np.float32)
    request = Request(id="r", model="m", tenant="t", prompt_tokens=9)
    record = record_of(request, vector.tobytes(), "letters", Outcome(output_tokens=4, censored=True), 1.0)
    again, back, outcome = learnable(record)
    assert (back == vector).all()
    assert (again.model, again.tenant, again.prompt_tokens) == ("m", "t", 9)
    assert outcome == Outcome(output_tokens=4, censored=True)
