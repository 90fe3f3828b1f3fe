"""`queue`, `explain` and `top` against a real sidecar before a real (simulated) engine: processes and sockets."""

import asyncio
import json
import os
import pty
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple

import aiohttp
import pytest
import pytest_asyncio

from sagesched_cli.demo.children import child

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Served(NamedTuple):
    """A sidecar with one slot, and the ids of its requests, the first of which runs and the others wait."""

    url: str
    ids: tuple[str, ...]


class Done(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str


async def sagesched(*arguments: str, url: str | None = None) -> Done:
    """The command in a process of its own; `url` in its environment."""
    pipe = asyncio.subprocess.PIPE
    environment = os.environ | ({} if url is None else {"SAGESCHED_URL": url})
    command = [sys.executable, "-m", "sagesched_cli", *arguments]
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe, env=environment)
    out, err = await asyncio.wait_for(process.communicate(), 60)
    return Done(process.returncode or 0, out.decode(), err.decode())


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Served]:
    """Until the tests are over, the request that runs goes on: its engine is slow."""
    logs = tmp_path_factory.mktemp("logs")
    engine = ("--port", "0", "--speedup", "0.2", "--median-tokens", "2000")
    async with child("sagesched_sim", engine, logs / "engine.log") as upstream:
        sidecar = ("--upstream", upstream, "--port", "0", "--slots", "1")
        async with (
            child("sagesched_sidecar", sidecar, logs / "sidecar.log") as url,
            aiohttp.ClientSession() as http,
        ):
            ids = tuple(f"asked-{n}" for n in range(3))
            asking = await _asked(http, url, ids)
            yield Served(url, ids)
            for one in asking:
                one.cancel()
            await asyncio.gather(*asking, return_exceptions=True)


async def _asked(http: aiohttp.ClientSession, url: str, ids: Sequence[str]) -> list["asyncio.Task[None]"]:
    asking = []
    for number, one in enumerate(ids):
        asking.append(asyncio.create_task(_chat(http, url, one)))
        async with asyncio.timeout(30):
            while (await _gate(http, url)) != (1, number):
                await asyncio.sleep(0.01)
    return asking


async def _chat(http: aiohttp.ClientSession, url: str, request_id: str) -> None:
    body = {"model": "sagesched-sim", "messages": [{"role": "user", "content": "zanzibar"}]}
    async with http.post(f"{url}/v1/chat/completions", json=body, headers={"X-Request-Id": request_id}) as answer:
        await answer.read()


async def _gate(http: aiohttp.ClientSession, url: str) -> tuple[int, int]:
    async with http.get(f"{url}/sagesched/status") as answer:
        gate = (await answer.json())["gate"]
        return gate["running"], gate["waiting"]


async def test_the_queue_as_table_and_as_json(served: Served) -> None:
    told = json.loads((await sagesched("queue", "--json", "--url", served.url)).out)
    assert told["waiting"] == 2
    assert [row["request_id"] for row in told["rows"]] == list(served.ids[1:])
    shown = await sagesched("queue", "--once", "--rows", "1", url=served.url)
    assert shown.code == 0
    assert "2 waiting, the first 1" in shown.out
    assert served.ids[1] in shown.out
    assert served.ids[2] not in shown.out
    assert "zanzibar" not in shown.out


async def test_requests_are_explained(served: Served) -> None:
    shown = await sagesched("explain", served.ids[1], "--url", served.url)
    assert shown.code == 0
    for label in ("request", "evidence", "distribution", "mean", "rank"):
        assert f"\n{label} " in f"\n{shown.out}"
    assert f"{served.ids[1]}: waiting" in shown.out
    told = json.loads((await sagesched("explain", served.ids[0], "--json", "--url", served.url)).out)
    assert (told["request_id"], told["phase"]) == (served.ids[0], "running")
    missing = await sagesched("explain", "../nobody", "--url", served.url)
    assert (missing.code, missing.out) == (1, "")
    assert "nobody" in missing.err


async def test_several_sidecars_are_looked_at_together(served: Served) -> None:
    nobody = "http://127.0.0.1:9"
    arguments = ["--url", served.url, "--url", nobody, "--interval", "0.1"]
    told = json.loads((await sagesched("top", "--json", *arguments)).out)
    assert [one["reachable"] for one in told] == [True, False]
    assert (told[0]["status"]["gate"]["waiting"], told[0]["requests_per_s"]) == (2, 0.0)
    shown = await sagesched("top", "--once", *arguments)
    assert shown.code == 0
    assert "1 of 1 slots" in shown.out
    assert "not reachable" in shown.out


async def test_a_live_view_shows_what_waits_until_it_is_interrupted(served: Served) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "sagesched_cli", "queue", "--interval", "0.05", "--url", served.url]
    environment = os.environ | {"COLUMNS": "120", "TERM": "xterm"}
    process = await asyncio.create_subprocess_exec(
        *command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    try:
        seen = await asyncio.wait_for(asyncio.to_thread(_read_until, ours, served.ids[2].encode(), 3), 30)
        assert b"2 waiting" in seen
        process.send_signal(signal.SIGINT)
        await asyncio.to_thread(_read_until, ours, b"\x1b[?25h", 1)
        assert await asyncio.wait_for(process.wait(), 30) == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(ours)


def _read_until(terminal: int, mark: bytes, times: int) -> bytes:
    """What a terminal shows until it has shown the mark so often."""
    seen = b""
    while seen.count(mark) < times:
        seen += os.read(terminal, 65_536)
    return seen


@pytest.mark.parametrize("command", [["queue", "--once"], ["explain", "x"], ["top", "--once"]])
async def test_no_sidecar_ends_with_69(command: list[str]) -> None:
    done = await sagesched(*command, "--url", "http://127.0.0.1:9")
    assert (done.code, done.out) == (69, "")
    assert "no sidecar answers at http://127.0.0.1:9" in done.err


@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nno\n", 76),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]", 76),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", 76),
        (b'HTTP/1.1 403 Forbidden\r\nContent-Length: 16\r\n\r\n{"error": "only"', 76),
        (b'HTTP/1.1 403 Forbidden\r\nContent-Length: 17\r\n\r\n{"error": "only"}', 77),
        (b"SSH-2.0-OpenSSH_9.6\r\n", 76),
        (b'HTTP/1.1 404 No\r\nContent-Length: 25\r\n\r\n{"error": "\\u001b[31m\\n"}', 1),
    ],
)
async def test_what_answers_otherwise_has_an_exit_code_of_its_own(answer: bytes, code: int) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        done = await sagesched("top", "--once", "--url", f"http://127.0.0.1:{port}")
    assert (done.code, done.out) == (code, "")
    assert done.err.startswith("sagesched: ")
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    "url", ["ftp://a", "http://", "127.0.0.1:8080", "http://a:99999", "http://me:key@a", "http://a/x"]
)
async def test_a_wrong_address_ends_with_64(url: str) -> None:
    for done in (await sagesched("queue", "--url", url), await sagesched("explain", "x", url=url)):
        assert (done.code, done.out) == (64, "")
        assert "http://HOST:PORT" in done.err
