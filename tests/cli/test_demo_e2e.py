"""The demo itself, small and fast: real processes, real sockets, the real openai client."""

import asyncio
import json
import os
from pathlib import Path

import pytest

from sagesched_cli.__main__ import main
from sagesched_cli.demo.children import child
from sagesched_cli.demo.errors import DemoError


def test_a_small_demo_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = (("bread", 20), ("stars", 60))
    rows = ((n, *kinds[n % 2]) for n in range(90))
    lines = [json.dumps({"prompt": f"Question {n} about {topic}", "output_tokens": size}) for n, topic, size in rows]
    data = tmp_path / "log.jsonl"
    data.write_text("\n".join(lines))
    out = tmp_path / "build" / "demo.json"
    arguments = ["--data", str(data), "--requests", "40", "--slots", "4", "--speedup", "40", "--out", str(out)]
    assert main(["demo", *arguments]) == 0

    found = json.loads(out.read_bytes())
    assert found["refused"] == 0
    assert found["history"] == 50
    assert found["capacity_rps"] > 0
    assert found["calibration"]["predictions"] >= 30
    assert found["spearman"] > 0.5
    for policy in ("fcfs", "sagesched"):
        times = found["policies"][policy]["ttlt_s"]
        assert 0 < times["p50"] <= times["p95"] <= times["p99"] <= times["max"]
        assert found["policies"][policy]["fallbacks"] == {}
    printed = capsys.readouterr().out
    assert "TTLT P99" in printed
    assert "one request explained" in printed
    assert out.with_suffix(".html").stat().st_size > 1000
    assert {path.suffix for path in (out.parent / "demo-logs").iterdir()} == {".log"}


def test_data_that_cannot_be_read_ends_with_64(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--data", str(tmp_path / "none.jsonl")]) == 64
    assert "none.jsonl" in capsys.readouterr().err


def test_a_sidecar_that_does_not_start_ends_with_1_and_its_log(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sagesched_cli.demo.runs.WAIT_BOUND_S", -1.0)
    out = tmp_path / "demo.json"
    assert main(["demo", "--requests", "3", "--history", "3", "--out", str(out)]) == 1
    said = capsys.readouterr().err
    assert "sagesched_sidecar ended with 64 before it was ready" in said
    assert "maxWaitSeconds" in said
    assert not out.exists()


async def test_a_child_is_ended_whatever_happens(tmp_path: Path) -> None:
    module = tmp_path / "sleeper.py"
    module.write_text(
        "import json, os, signal, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN) if os.environ.get('STUBBORN') else None\n"
        "print(json.dumps({'url': str(os.getpid())}), flush=True)\n"
        "signal.pause()\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        patch.setenv("STUBBORN", "1")
        patch.setattr("sagesched_cli.demo.children.STOP_LIMIT_S", 0.1)
        with pytest.raises(DemoError, match="on purpose"):
            await _fail_beside_a_child("sleeper", tmp_path / "log")
    pid = json.loads((tmp_path / "log").read_bytes())["url"]
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


async def _fail_beside_a_child(module: str, log: Path) -> None:
    async with child(module, (), log):
        raise DemoError("on purpose")


async def test_a_cancelled_demo_leaves_no_child(tmp_path: Path) -> None:
    started: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    async def hold() -> None:
        async with child("sagesched_sim", ("--port", "0"), tmp_path / "log") as url:
            started.set_result(int(url.rpartition(":")[2]))
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    port = await started
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", port)
