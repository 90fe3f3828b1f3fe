"""Kubernetes' programs: built once, each whole under its name, and what a machine lacks is named."""

import subprocess
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The script with a cache of its own, and builds that only write a file down."""
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "scripts"))
    import cluster_binaries as module

    monkeypatch.setenv("SAGESCHED_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "DISK_BYTES", 0)
    return module


def answering(status: int, words: str, built: list[str]) -> Any:
    """`subprocess.run` of a Go that builds, or does not, and says its version."""

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        if command[1] == "build" and status == 0:
            target = Path(command[command.index("-o") + 1])
            target.write_text("program", encoding="ascii")
            built.append(target.name)
        return subprocess.CompletedProcess(command, status, words, words)

    return run


def test_a_program_is_built_once(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []
    monkeypatch.setattr(script.subprocess, "run", answering(0, "", built))
    folder = script.binaries_folder()
    script.make(folder)
    script.make(folder)
    assert len(built) == len(script.PROGRAMS)
    assert {path.name for path in folder.iterdir()} == set(script.PROGRAMS), "nothing unfinished is left"
    assert script.missing() == [], "no Go is needed any more"


def test_one_that_does_not_build_is_named_and_built_the_next_time(script: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script.subprocess, "run", answering(1, "no such module", []))
    with pytest.raises(script.BuildFailed, match="etcd: no such module"):
        script.make(script.binaries_folder())
    assert not script.is_complete(script.binaries_folder())
    monkeypatch.setattr(script.subprocess, "run", answering(0, "", []))
    script.make(script.binaries_folder())
    assert script.is_complete(script.binaries_folder())


@pytest.mark.parametrize(
    ("found", "version", "named"),
    [
        (None, "", "Go 1.26 or newer"),
        ("/bin/go", "go version go1.21.5 linux/amd64", "this is 1.21.5"),
        ("/bin/go", "nonsense", "this is unknown"),
    ],
)
def test_what_is_missing_is_named(
    script: Any, monkeypatch: pytest.MonkeyPatch, found: str | None, version: str, named: str
) -> None:
    monkeypatch.setattr(script.shutil, "which", lambda _: found)
    monkeypatch.setattr(script.subprocess, "run", answering(0, version, []))
    [lack] = script.missing()
    assert named in lack


def test_every_module_of_tools_is_locked(script: Any) -> None:
    for program in script.PROGRAMS.values():
        folder = script.TOOLS / program.module
        assert (folder / "go.mod").exists()
        assert (folder / "go.sum").exists()
