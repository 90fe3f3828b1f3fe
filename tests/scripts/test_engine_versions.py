"""Which versions are tried, how their tests are counted, and what the documentation says of them."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
REPORT = """<testsuites><testsuite>
<testcase name="test_a[sync-stock]"/><testcase name="test_a[sync-sage]"/>
<testcase name="test_b[async-sage]"><failure/></testcase><testcase name="test_c[sync-stock]"><skipped/></testcase>
</testsuite></testsuites>"""


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The script, which finds its neighbours as it does when it is run."""
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))
    module = importlib.import_module("engine_versions")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(module, "OUTPUT", tmp_path)
    return module


def answers(monkeypatch: pytest.MonkeyPatch, script: ModuleType, status: int, text: str = "", report: str = "") -> None:
    """Whatever is run ends like this."""

    def run(command: list[str], **_: Any) -> Any:
        for argument in command:
            if report and argument.startswith("--junitxml="):
                Path(argument.partition("=")[2]).write_text(report, encoding="utf-8")
        return subprocess.CompletedProcess(command, status, stdout=text, stderr="no index")

    monkeypatch.setattr(script.subprocess, "run", run)


def test_the_newest_patch_of_each_minor_version_is_tried(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "vllm (0.34.0)\nAvailable versions: 0.34.0, 0.30.0, 0.29.2, 0.29.10, 0.29.0, 0.28.9, 0.9.0.1, 0.8.5.post1\n"
    answers(monkeypatch, script, 0, text)
    assert script.released() == ["0.29.10", "0.30.0", "0.34.0"]


def test_an_index_that_does_not_answer_is_an_error(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    answers(monkeypatch, script, 1)
    with pytest.raises(script.EngineFailed, match="no index"):
        script.released()
    answers(monkeypatch, script, 0, "nothing\n")
    with pytest.raises(script.EngineFailed, match="no version"):
        script.released()


def test_what_was_skipped_did_not_pass(script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    answers(monkeypatch, script, 1, report=REPORT)
    result = script.Result("0.33.0")
    script.run_tests(script.Environment(tmp_path), result)
    assert (result.passed, result.failed, result.passed_stock) == (2, 2, 1)
    assert not result.is_good


def test_tests_that_do_not_start_are_a_failure(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers(monkeypatch, script, 4)
    monkeypatch.setattr(script.version_environment, "made", lambda version: script.Environment(tmp_path))
    (tmp_path / "requirements.txt").write_text("torch==2.13.0 ; linux\nvllm==0.33.0\n", encoding="utf-8")
    result = script.examine("0.33.0")
    assert "did not start" in result.problem
    assert (result.torch, result.is_good) == ("2.13.0", False)
    assert "did not start" in script.table([result])


def test_the_metadata_says_cpu_and_the_cache_s_own_file_stays(script: ModuleType, tmp_path: Path) -> None:
    """uv links files from its cache: writing into one would change it for every environment."""
    folder = tmp_path / "env/lib/python3.11/site-packages/vllm-0.33.0.dist-info"
    folder.mkdir(parents=True)
    cached = tmp_path / "cached"
    cached.write_text("Name: vllm\nVersion: 0.33.0\n", encoding="utf-8")
    os.link(cached, folder / "METADATA")
    script.version_environment.as_for_cpus(tmp_path / "env", "0.33.0")
    assert (folder / "METADATA").read_text(encoding="utf-8") == "Name: vllm\nVersion: 0.33.0+cpu\n"
    assert cached.read_text(encoding="utf-8") == "Name: vllm\nVersion: 0.33.0\n"
    with pytest.raises(script.EngineFailed):
        script.version_environment.as_for_cpus(tmp_path / "env", "0.1.0")


def test_the_documented_versions_are_those_that_the_scheduler_takes(script: ModuleType) -> None:
    sys_path = [str(ROOT / "plugin"), *sys.path]
    code = "from sagesched_vllm.versions import NEWEST, OLDEST; print(*OLDEST, *NEWEST)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(sys_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    major, oldest, _, newest = map(int, done.stdout.split())
    rows = re.findall(r"^\| (\d+)\.(\d+)\.\d+ \|.*\| works \|$", script.DOCS.read_text("utf-8"), re.M)
    assert [(int(a), int(b)) for a, b in rows] == [(major, minor) for minor in range(oldest, newest + 1)]
    assert (major, oldest) == script.OLDEST
