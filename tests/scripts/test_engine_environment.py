"""The engine's environment: made once and whole, by one process at a time, and only outside the repository."""

import importlib.util
import threading
from pathlib import Path
from types import ModuleType

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "engine_environment.py"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """The script, with a cache of its own and steps that only say that they ran."""
    spec = importlib.util.spec_from_file_location("engine_environment", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.ran = []
    monkeypatch.setenv("SAGESCHED_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "DISK_BYTES", 0)
    monkeypatch.setattr(module, "run", lambda what, command, folder: module.ran.append(what))
    monkeypatch.setattr(module, "add_metadata", lambda python: None)
    return module


def test_it_is_made_once_however_many_ask_at_a_time(script: ModuleType) -> None:
    asking = [threading.Thread(target=script.make, args=(script.engine_folder(),)) for _ in range(5)]
    for one in asking:
        one.start()
    for one in asking:
        one.join()
    assert script.is_complete(script.engine_folder())
    assert len(script.ran) == len(set(script.ran)) > 0


def test_what_was_left_half_made_is_begun_anew(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(what: str, command: list[str], folder: Path) -> None:
        (folder / "half").touch()
        raise script.EngineFailed(what)

    with monkeypatch.context() as patched:
        patched.setattr(script, "run", fail)
        with pytest.raises(script.EngineFailed):
            script.make(script.engine_folder())
    assert not script.is_complete(script.engine_folder())
    script.make(script.engine_folder())
    assert script.is_complete(script.engine_folder())
    assert not (script.engine_folder() / "half").exists()


def test_another_lock_is_another_folder(script: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = script.engine_folder()
    lock = tmp_path / "engine.txt"
    lock.write_bytes(script.LOCK.read_bytes() + b"\n")
    monkeypatch.setattr(script, "LOCK", lock)
    assert script.engine_folder() != before
    assert before.parent == tmp_path


def test_what_is_missing_is_named_with_its_remedy(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(script.ctypes, "CDLL", no_library)
    assert any("apt-get install libnuma1" in lack for lack in script.missing())


def test_a_full_disk_is_said_before_anything_is_loaded(script: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "DISK_BYTES", 1 << 60)
    with pytest.raises(script.EngineFailed, match="GB free"):
        script.make(script.engine_folder())
    assert script.ran == []


def test_the_progress_of_a_step_is_its_own(script: ModuleType, tmp_path: Path) -> None:
    log = tmp_path / "make.log"
    log.write_text("Collecting a\nInstalling collected packages: a\n", encoding="utf-8")
    start = log.stat().st_size
    with log.open("a", encoding="utf-8") as more:
        more.write("Writing model\n")
    assert script.progress(log, 0) == "unpacking and installing"
    assert script.progress(log, start) == "Writing model"


def test_every_pin_of_the_lock_has_a_hash(script: ModuleType) -> None:
    text = script.LOCK.read_text(encoding="utf-8")
    pins = [line for line in text.splitlines() if line and not line.startswith((" ", "#"))]
    assert len(pins) > 100
    assert all("==" in pin and pin.endswith("\\") for pin in pins)
