"""The lengths that the engine replays are known to the engine alone."""

import json
import os
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from bench.engine import lengths_file, servers, vllm_process
from bench.engine.client import Shot, body_of, drive
from bench.engine.policies import FCFS, POLICIES, predicted_means
from bench.engine.workload import MAX_TOKENS, Asked, Workload, scaled

from sagesched_sim.options import Options
from sagesched_sim.server import SimServer
from sagesched_sim.workload.exchange import Exchange

ROOT = Path(__file__).parents[2]
ROOMS = ("core", "sidecar", "store", "sim", "cli")
ASKED = tuple(Asked(f"Question {n} about rivers", [n, n + 1]) for n in range(6))
TRUTH = (11, 222, 33, 144, 55, 266)
EARLIER = tuple(Exchange(f"Earlier question {n}", 20 + n) for n in range(50))


class NoEngine:
    """Stands for the engine's process: what it is started with is all that matters here."""

    started: dict[str, Any]
    url = "http://127.0.0.1:9"

    def __init__(self, *_: object, python_path: Path, environment: dict[str, str]) -> None:
        NoEngine.started = {"environment": environment}

    def keep_apart(self) -> None:
        """Nothing runs."""

    def stop(self) -> None:
        """Nothing runs."""


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> type[NoEngine]:
    """No vLLM is started."""
    monkeypatch.setattr(servers, "VllmProcess", NoEngine)
    return NoEngine


def lengths() -> list[tuple[list[int], int]]:
    """What the engine is to replay."""
    return [(asked.token_ids, tokens) for asked, tokens in zip(ASKED, TRUTH, strict=True)]


async def test_the_sidecar_opens_no_file_of_the_engine_s_and_has_no_way_to_its_name(
    no_engine: type[NoEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen from within its process while it serves: what it opens, what its environment and its settings say."""
    opened = tmp_path / "opened"
    monkeypatch.setenv("AUDIT_FILE", str(opened))
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parents[1] / 'fakes'}:{os.environ.get('PYTHONPATH', '')}")
    upstream = SimServer(Options(speedup=200.0, model=vllm_process.MODEL))
    url = await upstream.start()
    policy = POLICIES["sagesched-gate"]
    with servers.engine(tmp_path, tmp_path / "log", policy, lengths()):
        secret = Path(no_engine.started["environment"][lengths_file.FILE_VARIABLE])
        nonce = no_engine.started["environment"][lengths_file.NONCE_VARIABLE]
        assert secret.is_file()
        rows = [{"prompt": x.prompt, "output_tokens": x.output_tokens} for x in EARLIER]
        history = servers.write_history(tmp_path / "history.jsonl", rows)
        settings = servers.sidecar_settings(policy, history, len(ASKED), {})
        with servers.sidecar(url, settings, tmp_path / "settings.json", module="audited_sidecar") as sidecar_url:
            served = await drive(sidecar_url, [Shot(asked, 0.0) for asked in ASKED])
            pages = [await page(f"{sidecar_url}/{name}") for name in ("metrics", "sagesched/status")]
    await upstream.stop()
    assert len(served) == len(ASKED)
    lines = opened.read_text(encoding="utf-8").splitlines()
    paths = {Path(line) for line in lines if line.startswith("/")}
    environment = [line for line in lines if not line.startswith("/")]
    assert history in paths, "the hook sees what is opened"
    assert not [path for path in paths if path == secret or path.is_relative_to(secret.parent)]
    said = json.dumps(settings) + history.read_text(encoding="utf-8") + "".join(pages)
    assert str(secret.parent) not in said
    assert nonce not in said
    assert not any(asked.prompt in said for asked in ASKED)
    assert f"AUDIT_FILE={str(opened)!r}" in environment, "and its environment"
    assert not [one for one in environment if str(secret.parent) in one or nonce in one or "SAGESCHED_BENCH" in one]
    assert not secret.exists(), "gone with the engine"


async def page(url: str) -> str:
    """Its text."""
    async with aiohttp.ClientSession() as http, http.get(url) as answer:
        return await answer.text()


def test_the_file_tells_nothing_without_the_nonce(no_engine: type[NoEngine], tmp_path: Path) -> None:
    with servers.engine(tmp_path, tmp_path / "log", POLICIES[FCFS], lengths()):
        environment = no_engine.started["environment"]
        file = Path(environment[lengths_file.FILE_VARIABLE])
        text, mode = file.read_text(encoding="utf-8"), file.stat().st_mode
    nonce = environment[lengths_file.NONCE_VARIABLE]
    found = json.loads(text)
    assert [found[lengths_file.key(nonce, asked.token_ids)] for asked in ASKED] == list(TRUTH)
    assert not {lengths_file.key("", asked.token_ids) for asked in ASKED} & set(found)
    assert not any(asked.prompt in text for asked in ASKED)
    assert nonce not in text
    assert mode & 0o077 == 0


@pytest.mark.parametrize("policy", [policy for policy in POLICIES.values() if policy.name != "clairvoyant"])
def test_what_is_sent_does_not_depend_on_the_truth(policy: Any) -> None:
    """The bound alone may know: everybody else sends the same whatever the lengths are, and one max_tokens for all."""
    shots = []
    for truth in (TRUTH, tuple(reversed(TRUTH))):
        priorities = policy.priorities(Workload(ASKED, truth, EARLIER))
        shots.append([Shot(a, 0.0, p) for a, p in zip(ASKED, priorities or [None] * len(ASKED), strict=True)])
    assert shots[0] == shots[1]


def test_the_history_is_an_earlier_part_and_holds_nothing_that_is_measured() -> None:
    work = Workload(ASKED, TRUTH, EARLIER)
    assert not {x.prompt for x in work.history} & {asked.prompt for asked in work.asked}
    assert predicted_means(work) == predicted_means(Workload(ASKED, (), EARLIER))


def test_no_room_knows_of_the_replay() -> None:
    """Neither its variables, nor its modules, nor a file of recorded lengths by that name."""
    words = re.compile(rf"{lengths_file.FILE_VARIABLE}|{lengths_file.NONCE_VARIABLE}|lengths_file|bench\.engine")
    for room in ROOMS:
        for path in (ROOT / room).rglob("*.py"):
            assert not words.search(path.read_text(encoding="utf-8")), path


def test_max_tokens_is_the_same_for_all_and_no_length_is_beyond_it() -> None:
    bodies = [body_of(Shot(asked, 0.0)) for asked in ASKED]
    assert {body["max_tokens"] for body in bodies} == {MAX_TOKENS}
    assert max(scaled(10**6), *TRUTH) <= MAX_TOKENS
