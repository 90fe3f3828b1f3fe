"""The real process: it says where it listens, drains on SIGTERM, and logs no prompt."""

import asyncio
import json
import signal
import sys

SECRET = "zanzibar-marmalade"
CHAT = json.dumps({"model": "m", "messages": [{"role": "user", "content": SECRET}]}).encode()
ANSWER = json.dumps(
    {"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": 4, "completion_tokens": 6}}
).encode()
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER)


class Process:
    """A sidecar in a process of its own."""

    async def begin(self, url, *arguments):
        pipe = asyncio.subprocess.PIPE
        command = [sys.executable, "-m", "sagesched_sidecar", "--upstream", url, "--port", "0", *arguments]
        self.child = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
        line = json.loads(await self.child.stdout.readline())
        self.address = (line["listening"]["host"], line["listening"]["port"])
        return self

    async def end(self):
        async with asyncio.timeout(30):
            return await self.child.wait(), (await self.child.stderr.read()).decode()


async def test_a_request_a_drain_and_no_prompt_in_the_logs(client, fakes, tmp_path):
    seed = tmp_path / "seed.jsonl"
    seed.write_text(json.dumps({"prompt": SECRET, "output_tokens": 5}) + f"\n{{{SECRET}\n")
    go = asyncio.Event()
    answers = iter([fakes.Script([OK]), fakes.Script([OK], gate=go)])
    async with fakes.RawUpstream(lambda seen: next(answers)) as engine:
        process = await Process().begin(engine.url, "--log-level", "debug", "--seed-history", str(seed))
        assert (await client.ask(process, "POST", "/v1/chat/completions", CHAT)).body == ANSWER
        open_one = asyncio.ensure_future(client.ask(process, "POST", "/v1/chat/completions", CHAT))
        await engine.request(1)
        process.child.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            while (await client.ask(process, "GET", "/readyz")).status != 503:
                pass
        go.set()
        assert (await open_one).body == ANSWER
        status, log = await process.end()
    assert status == 0
    lines = [json.loads(line) for line in log.splitlines()]
    assert {"draining", "ended", "request ended", "seed file learnt"} <= {line["message"] for line in lines}
    assert SECRET not in log


async def test_a_second_sigterm_ends_at_once(client, fakes):
    async with fakes.RawUpstream(lambda seen: fakes.Script([], "hang")) as engine:
        process = await Process().begin(engine.url, "--drain", "600")
        open_one = asyncio.ensure_future(client.ask(process, "POST", "/v1/chat/completions", CHAT))
        seen = await engine.request(0)
        process.child.send_signal(signal.SIGTERM)
        async with asyncio.timeout(10):
            while (await client.ask(process, "GET", "/readyz")).status != 503:
                pass
        process.child.send_signal(signal.SIGTERM)
        status, _ = await process.end()
        async with asyncio.timeout(5):
            await seen.closed.wait()
        outcome = (await asyncio.gather(open_one, return_exceptions=True))[0]
    assert status == 0
    assert isinstance(outcome, asyncio.IncompleteReadError | ConnectionError)


async def test_wrong_settings_end_with_64_before_a_port_opens(tmp_path):
    pipe = asyncio.subprocess.PIPE
    command = [sys.executable, "-m", "sagesched_sidecar", "--upstream", "http://127.0.0.1:1", "--slots", "0"]
    child = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    out, err = await child.communicate()
    assert (child.returncode, out) == (64, b"")
    assert b"engine.slots" in err
