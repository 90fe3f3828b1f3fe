"""No prompt text anywhere but on its way: words planted in prompts are looked for in all that a sidecar leaves."""

import asyncio
import json
import sys

import pytest
import real_qdrant

from sagesched.embed import open_embedder
from sagesched.settings import Settings
from sagesched_cli.__main__ import main
from sagesched_store.record import Space

CANARIES = ("xylocanary", "qwertzcanary", "вороныcanary")
STOP = {"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": 40, "completion_tokens": 6}}


def found_in(content: bytes) -> list[str]:
    return [one for one in CANARIES if one.encode() in content or json.dumps(one)[1:-1].encode() in content]


@pytest.mark.parametrize("kind", ["embedded", pytest.param("server", marks=pytest.mark.qdrant)])
@pytest.mark.timeout(400)
async def test_no_store_log_metric_status_dump_or_export_has_a_word_of_a_prompt(kind, client, fakes, tmp_path, request):
    body = json.dumps(STOP).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    where, folders = ["--path", str(tmp_path / "history")], [tmp_path]
    history = {"store": "embedded", "path": str(tmp_path / "history")}
    if kind == "server":
        server = request.getfixturevalue("own_qdrant")
        mine = real_qdrant.Collections(server.url)
        embedder = open_embedder(Settings().embedding)
        mine.make(Space(embedder.name, embedder.dimensions))
        where = ["--url", server.url, "--collection-prefix", mine.place.prefix]
        history = {"store": "server", "server": {"url": server.url, "collectionPrefix": mine.place.prefix}}
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"history": history}))
    pages = b""
    async with fakes.RawUpstream(lambda seen: fakes.Script([head + body])) as engine:
        command = [
            sys.executable,
            "-X",
            "faulthandler",
            "-m",
            "sagesched_sidecar",
            "--upstream",
            engine.url,
            "--port",
            "0",
        ]
        child = await asyncio.create_subprocess_exec(
            *command,
            "--settings",
            str(settings),
            "--log-level",
            "debug",
            stdout=asyncio.subprocess.PIPE,
            stderr=(tmp_path / "log").open("wb"),
        )
        listening = json.loads(await child.stdout.readline())["listening"]
        sidecar = type("Sidecar", (), {"address": (listening["host"], listening["port"])})
        for number, word in enumerate(CANARIES * 3):
            ask = {"model": "m", "messages": [{"role": "user", "content": f"{word} {number}"}]}
            assert (await client.ask(sidecar, "POST", "/v1/chat/completions", json.dumps(ask).encode())).status == 200
        await client.ask(sidecar, "POST", "/v1/chat/completions", b'{"messages": "' + CANARIES[0].encode())
        for path in ("/metrics", "/sagesched/status", "/sagesched/queue", "/sagesched/settings"):
            pages += (await client.ask(sidecar, "GET", path)).body
        await asyncio.sleep(2)
        child.send_signal(6)  # SIGABRT: what the fault handler dumps is in the log
        await child.wait()
    export = tmp_path / "export.jsonl"
    assert await asyncio.to_thread(main, ["history", "export", str(export), *where]) == 0
    assert len(export.read_bytes().splitlines()) == 9, "they were learnt and stored"
    assert b"Fatal Python error: Aborted" in (tmp_path / "log").read_bytes()
    assert found_in(pages) == []
    read = 0
    for folder in folders:
        for file in folder.rglob("*"):
            if file.is_file():
                content = file.read_bytes()
                read += len(content)
                assert found_in(content) == [], file
    assert read > 1000
    assert found_in(CANARIES[2].encode()), "the search finds what is there"
