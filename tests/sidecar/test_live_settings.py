"""The settings file while the sidecar runs: watched by content, taken over whole or not at all, the last good kept."""

import asyncio
import json
import os
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from sagesched.settings import Settings, decode, digest
from sagesched_sidecar import live as module
from sagesched_sidecar.live import LiveSettings
from sagesched_sidecar.settings_file import MAX_FILE_BYTES, Source


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(module, "SETTLE_SECONDS", 0)


def beginning(file, text="{}", flags=None, pod="me"):
    file.write_text(text)
    source = Source(file, flags or {}, pod)
    return LiveSettings(source, source.load(source.read()))


GOOD = {
    "{}": {},
    "queue: {maxRequests: 3}": {"queue": {"maxRequests": 3}},
    '{"scheduling": {"policy": "sjf"}}': {"scheduling": {"policy": "sjf"}},
    "scheduling:\n  policy: fcfs\n  classes:\n  - name: a\n": {
        "scheduling": {"policy": "fcfs", "classes": [{"name": "a"}]}
    },
    "stable: {queue: {maxRequests: 9}}": {"queue": {"maxRequests": 9}},
    "stable: {}\ncandidate: {pods: [me], settings: {queue: {maxRequests: 4}}}": {"queue": {"maxRequests": 4}},
    "stable: {queue: {maxRequests: 2}}\ncandidate: {pods: [you], settings: {}}": {"queue": {"maxRequests": 2}},
}
BAD = [
    "",
    " \n",
    "queue: {maxRequests: 0}",
    "queue:",
    "qu",
    "queue: {maxReq",
    '{"scheduling": {"policy"',
    "[1]",
    "\x00\x01",
    "2001-99-99",
    "&a [*a]",
    "[" * 5000,
    "x" * (MAX_FILE_BYTES + 1),
    "stable: {}\ncandidate: {pods: [you], settings: {queue: {maxRequests: 0}}}",
    "!!python/object/apply:os.system [true]",
    None,
]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([*GOOD, *BAD]), max_size=12))
def test_the_last_good_file_is_in_use_whatever_came(tmp_path_factory, texts):
    file = tmp_path_factory.mktemp("live") / "settings.yaml"
    live = beginning(file)
    given_to_part, told, last_good = [], [], {}
    live.also(given_to_part.append)
    live.observe(told.append)

    async def all_of_them():
        nonlocal last_good
        before = "{}"
        for text in texts:
            told.clear()
            file.unlink(missing_ok=True)
            if text is not None:
                file.write_text(text)
            await live.look()
            last_good = GOOD.get(text, last_good)
            assert live.now.settings == decode(last_good)
            assert live.now.digest == live.now.file_digest == digest(decode(last_good))
            assert len(told) == (text != before), "a change is told once, and only a change"
            if told:
                assert (told[0].problem is None) == (text in GOOD)
                assert live.last is told[0]
            before = text

    asyncio.run(all_of_them())
    assert not given_to_part or given_to_part[-1].settings == live.now.settings
    for one, other in pairwise(given_to_part):
        assert one.settings != other.settings


async def test_a_directory_mount_is_followed_through_its_links(tmp_path):
    """As the kubelet does it: the file is a link through `..data`, which is renamed over."""

    def project(version, text):
        (tmp_path / version).mkdir()
        (tmp_path / version / "settings.yaml").write_text(text)
        os.utime(tmp_path / version / "settings.yaml", (1, 1))
        (tmp_path / "..new").symlink_to(version)
        (tmp_path / "..new").rename(tmp_path / "..data")

    project("..1", "queue: {maxRequests: 5}")
    file = tmp_path / "settings.yaml"
    file.symlink_to("..data/settings.yaml")
    source = Source(file)
    live = LiveSettings(source, source.load(source.read()))
    for k in (6, 7, 8):
        project(f"..{k}", f"queue: {{maxRequests: {k}}}")
        await live.look()
        assert live.now.settings.queue.max_requests == k, "same size, same time: only its content tells"


async def test_a_file_that_is_being_written_is_not_cut_short(tmp_path, monkeypatch):
    """The first half is valid by itself; it is never in use."""
    live = beginning(tmp_path / "settings.yaml")
    whole = "scheduling: {policy: fcfs}\nqueue: {maxRequests: 5}\n"
    used = []
    live.also(lambda now: used.append(now.settings.queue.max_requests))

    async def written_meanwhile(_):
        (tmp_path / "settings.yaml").write_text(whole)

    (tmp_path / "settings.yaml").write_text(whole[:27])
    with monkeypatch.context() as patched:
        patched.setattr(module.asyncio, "sleep", written_meanwhile)
        await live.look()
    assert live.now.settings == Settings()
    await live.look()
    assert (used, live.now.settings.scheduling.policy) == ([5], "fcfs")


async def test_flags_outweigh_the_file_also_when_it_changes(tmp_path):
    file = tmp_path / "settings.yaml"
    live = beginning(file, "engine: {slots: 3}", {"engine": {"slots": 8}})
    assert live.now.settings.engine.slots == 8
    file.write_text("engine: {slots: 4}\nscheduling: {policy: sjf}")
    await live.look()
    assert (live.now.settings.engine.slots, live.now.settings.scheduling.policy) == (8, "sjf")
    assert live.now.file_digest == digest(decode({"engine": {"slots": 4}, "scheduling": {"policy": "sjf"}}))
    assert live.now.digest == digest(live.now.settings) != live.now.file_digest


async def test_what_waits_for_a_restart_is_named_and_all_else_is_taken_over(tmp_path):
    file = tmp_path / "settings.yaml"
    live = beginning(file)
    file.write_text("engine: {apiKeyEnv: KEY, slots: 4}\n")
    await live.look()
    assert (live.now.settings.engine.slots, live.now.settings.engine.api_key_env) == (4, None)
    assert [change.path for change in live.now.pending] == ["engine.apiKeyEnv"]
    assert (live.last.result, live.last.problem) == ("pending", None)
    file.write_text("engine: {apiKeyEnv: OTHER, slots: 4}\n")
    await live.look()
    assert live.now.pending[0].new == "OTHER"
    file.write_text("engine: {slots: 4}\n")
    await live.look()
    assert (live.now.pending, live.last.result) == ((), "applied")


async def test_when_one_part_fails_all_have_the_old_settings_again(tmp_path):
    file = tmp_path / "settings.yaml"
    live = beginning(file)
    first, last = [], []
    live.also(lambda now: first.append(now.settings.queue.max_requests))

    def fails(now):
        if now.settings.queue.max_requests == 5:
            raise RuntimeError("not with me")

    live.also(fails)
    live.also(lambda now: last.append(now.settings.queue.max_requests))
    file.write_text("queue: {maxRequests: 5}")
    await live.look()
    assert (live.last.result, live.now.settings) == ("failed", Settings())
    assert (first, last) == ([5, 10_000], [10_000])
    file.write_text("queue: {maxRequests: 6}")
    await live.look()
    assert (live.last.result, last[-1]) == ("applied", 6)


async def test_a_file_of_a_form_that_nobody_thought_of_is_refused(tmp_path, monkeypatch):
    file = tmp_path / "settings.yaml"
    live = beginning(file)

    def fails(*_):
        raise RecursionError

    monkeypatch.setattr(Source, "load", fails)
    file.write_text("queue: {maxRequests: 5}")
    await live.look()
    assert (live.last.result, live.now.settings) == ("refused", Settings())
    assert "RecursionError" in live.last.problem


async def test_a_success_has_a_time_and_a_failure_keeps_it(tmp_path):
    file, clock = tmp_path / "settings.yaml", [100.0]
    file.write_text("{}")
    source = Source(file)
    live = LiveSettings(source, source.load(source.read()), wall_clock=lambda: clock[0])
    times = []
    for at, text in ((110.0, "queue: {maxRequests: 5}"), (120.0, "queue: ["), (130.0, "queue: {maxRequests: 5} ")):
        clock[0] = at
        file.write_text(text)
        await live.look()
        times.append((live.last.result, live.last.success_at_s))
    assert times == [("applied", 110.0), ("refused", 110.0), ("unchanged", 130.0)]


CHAT = json.dumps({"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "zanzibar"}]}).encode()
ANSWER = json.dumps({"choices": [{"finish_reason": "stop"}], "usage": {"completion_tokens": 6}}).encode()
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER)


async def families(client, sidecar):
    reply = await client.ask(sidecar, "GET", "/metrics")
    return {family.name: family.samples for family in text_string_to_metric_families(reply.body.decode())}


async def until(true):
    async with asyncio.timeout(10):
        while not true():
            await asyncio.sleep(0.001)


async def test_a_change_ranks_what_waits_anew_and_is_told_everywhere(start, client, fakes, tmp_path):
    file = tmp_path / "settings.yaml"
    plain = {"engine": {"slots": 1}, "scheduling": {"policy": "fcfs", "classes": [{"name": "low", "priority": 5}]}}
    file.write_text(json.dumps(plain))
    source = Source(file)
    loaded = source.load(source.read())
    go = asyncio.Event()
    engine, sidecar = await start(
        lambda seen: fakes.Script([OK], gate=go), plain, source=source, loaded=loaded, settings_poll_s=0.01
    )
    before = sidecar.live.now.digest
    asked = [("first", "default"), ("second", "low"), ("third", "default")]
    clients = []
    for k, (which, name) in enumerate(asked):
        fields = (f"X-Request-Id: {which}", f"X-Sagesched-Class: {name}")
        clients.append(asyncio.ensure_future(client.ask(sidecar, "POST", "/v1/chat/completions", CHAT, *fields)))
        await until(lambda k=k: len(sidecar.gate.ranking.tickets()) > k)
    await engine.request(0)
    assert sidecar.gate.ranking.peek(sidecar.gate._clock()).request.id == "third"
    file.write_text("engine: {slo")
    await until(lambda: sidecar.live.last.result == "refused")
    assert sidecar.gate.ranking.peek(sidecar.gate._clock()).request.id == "third"
    plain["scheduling"]["classes"][0]["priority"] = -5
    plain["scheduling"]["boost"] = 0.5
    file.write_text(json.dumps(plain))
    await until(lambda: sidecar.live.now.digest != before)
    assert sidecar.gate.ranking.peek(sidecar.gate._clock()).request.id == "second"

    status = json.loads((await client.ask(sidecar, "GET", "/sagesched/status")).body)
    now = digest(decode(plain))
    assert status["settings_digest"] == status["settings"]["digest"] == status["settings"]["file_digest"] == now
    assert (status["settings"]["revision"], status["settings"]["pending"]) == ("stable", [])
    assert [one["path"] for one in status["settings"]["idle"]] == ["scheduling.boost"]
    assert status["settings"]["last_reload"]["result"] == "applied"
    whole = json.loads((await client.ask(sidecar, "GET", "/sagesched/settings")).body)
    assert decode(whole["settings"]) == decode(plain)
    metrics = await families(client, sidecar)
    infos = [sample.labels for sample in metrics["sagesched_config_info"]]
    assert infos == [{"hash": now, "file_hash": now, "revision": "stable"}]
    reloads = {s.labels["result"]: s.value for s in metrics["sagesched_config_reload"] if s.name.endswith("_total")}
    assert reloads == {"refused": 1, "applied": 1}
    assert metrics["sagesched_config_last_reload_successful"][0].value == 1
    assert metrics["sagesched_config_last_reload_success_timestamp_seconds"][0].value == pytest.approx(
        status["settings"]["last_reload"]["success_at_s"]
    )
    go.set()
    assert [reply.status for reply in await asyncio.gather(*clients)] == [200] * 3


async def test_any_number_of_classes_bounds_the_labels(start, client, fakes, tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text("{}")
    source = Source(file)
    _, sidecar = await start(lambda seen: fakes.Script([OK]), {}, source=source, loaded=source.load(source.read()))
    for k in range(80):
        file.write_text(json.dumps({"scheduling": {"classes": [{"name": f"c{k}"}]}}))
        await sidecar.live.look()
        reply = await client.ask(sidecar, "POST", "/v1/chat/completions", CHAT, f"X-Sagesched-Class: c{k}")
        assert reply.status == 200
    metrics = await families(client, sidecar)
    assert len({s.labels["class"] for s in metrics["sagesched_queue_wait_seconds"]}) == 65
    assert {s.labels["class"] for s in metrics["sagesched_queue_depth"]} == {"default", "c79"}


async def test_bounds_of_the_server_change_too(start, client, fakes, tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text("{}")
    source = Source(file)
    _, sidecar = await start(lambda seen: fakes.Script([OK]), {}, source=source, loaded=source.load(source.read()))
    large = CHAT + b" " * 2000
    assert (await client.ask(sidecar, "POST", "/v1/chat/completions", large)).status == 200
    file.write_text(
        "server: {maxBodyBytes: 1024}\nengine: {metricsIntervalSeconds: 7}\nembedding: {deadlineSeconds: 9}"
    )
    await sidecar.live.look()
    assert (await client.ask(sidecar, "POST", "/v1/chat/completions", large)).status == 413
    assert sidecar.monitor.interval_s == 7
