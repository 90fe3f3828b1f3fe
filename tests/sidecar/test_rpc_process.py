"""The real process with its gRPC door: addresses it says, streams it serves, what it refuses to start with."""

import asyncio
import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sagesched_client import Client, subject
from sagesched_pb.v1 import scheduling_pb2 as calls

TLS = Path(__file__).parent.parent / "fakes" / "tls"
SECRET = "zanzibar-marmalade"
COMMAND = [sys.executable, "-m", "sagesched_sidecar", "--upstream", "http://127.0.0.1:9", "--port", "0"]


async def begun(*arguments):
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*COMMAND, *arguments, stdout=pipe, stderr=pipe)
    return child, json.loads(await child.stdout.readline())["listening"].get("grpc")


async def test_a_stream_a_drain_and_no_prompt_in_the_logs(tmp_path):
    path = tmp_path / "grpc.sock"
    child, addresses = await begun(
        *("--grpc", f"unix:{path}", "--grpc", "127.0.0.1:0", "--slots", "1", "--log-level", "debug")
    )
    assert addresses[0] == f"unix:{path}"
    assert addresses[1].startswith("127.0.0.1:")
    async with (
        asyncio.timeout(60),
        Client(addresses[0]) as by_socket,
        Client(addresses[1]) as by_port,
        by_socket.admit(subject(SECRET, max_tokens=9)) as runs,
    ):
        await runs.turn()
        for _ in range(50):
            async with by_port.admit(subject(SECRET)):
                pass
        while (await by_port.status()).waiting:
            pass
        child.send_signal(signal.SIGTERM)
        while not (await by_port.status()).draining:
            pass
        assert await runs.finish(4)
    async with asyncio.timeout(30):
        log = (await child.stderr.read()).decode()
        assert await child.wait() == 0
    assert "request ended" in log
    assert SECRET not in log
    assert not path.exists()


async def test_what_a_report_has_returned_for_is_there_after_a_kill(tmp_path):
    settings = tmp_path / "settings.json"
    history = {"store": "embedded", "path": str(tmp_path / "history")}
    settings.write_text(json.dumps({"history": history, "grpc": {"listen": ["127.0.0.1:0"]}}))
    event = calls.Event(completion=calls.Completion(output_tokens=77))
    child, addresses = await begun("--settings", str(settings))
    async with asyncio.timeout(60), Client(addresses[0]) as client:
        learnt = await asyncio.gather(
            *(client.report(event, request_id=f"r{k}", subject=subject("hello", model="m")) for k in range(20))
        )
        async with client.admit(subject("hello", model="m")) as stay:
            await stay.turn()
            learnt.append(await stay.finish(78))
        child.kill()
        await child.wait()
    assert learnt == [True] * 21
    child, addresses = await begun("--settings", str(settings))
    async with asyncio.timeout(60), Client(addresses[0]) as client:
        assert (await client.status()).history_rows == 21
        child.send_signal(signal.SIGTERM)
        assert await child.wait() == 0


async def test_a_second_process_cannot_have_the_same_port():
    child, addresses = await begun("--grpc", "127.0.0.1:0")
    other = await asyncio.create_subprocess_exec(*COMMAND, "--grpc", addresses[0], stderr=asyncio.subprocess.PIPE)
    async with asyncio.timeout(60):
        assert await other.wait() == 69
        child.send_signal(signal.SIGTERM)
        assert await child.wait() == 0


@pytest.mark.parametrize(
    ("settings", "field"),
    [
        ({"listen": ["0.0.0.0:50051"]}, "grpc.listen"),
        ({"listen": ["somewhere"]}, "grpc.listen"),
        ({"tlsCertFile": "/nowhere.pem", "tlsKeyFile": "/nowhere.key"}, "grpc.tlsCertFile"),
        ({"tlsCertFile": str(TLS / "server.pem"), "tlsKeyFile": str(TLS / "client.key")}, "grpc.tlsCertFile"),
        (
            {
                "tlsCertFile": str(TLS / "server.pem"),
                "tlsKeyFile": str(TLS / "server.key"),
                "tlsClientCaFile": __file__,
            },
            "grpc.tlsClientCaFile",
        ),
    ],
)
def test_wrong_settings_end_with_64_and_the_field(tmp_path, settings, field):
    path = tmp_path / "settings.json"
    path.write_text(json.dumps({"grpc": settings}))
    done = subprocess.run([*COMMAND, "--settings", str(path)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 64
    assert f"{field}: " in done.stderr
    assert done.stdout == ""
