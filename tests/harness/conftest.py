"""These tests run inside the engine's own Python (scripts/engine_harness.py); elsewhere there is nothing to collect."""

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path

import pytest

INSIDE = importlib.util.find_spec("vllm") is not None
collect_ignore_glob = [] if INSIDE else ["test_*.py"]

if INSIDE:
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    from engine_world import MODES, Shape, World
    from model_folder import write_model_folder

    MakeWorld = Callable[..., World]
    Additional = tuple[tuple[str, str], ...]
    SCHEDULERS: dict[str, str | None] = {"stock": None}
    if (Path(__file__).parents[2] / "plugin").is_dir():  # the room of ours; where it is, it is tested
        SCHEDULERS["sage"] = "sagesched_vllm.SageScheduler"

    @pytest.fixture(scope="session")
    def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
        """A model without weights."""
        return write_model_folder(tmp_path_factory.mktemp("model"))

    @pytest.fixture(params=MODES)
    def mode(request: pytest.FixtureRequest) -> str:
        """Synchronous and asynchronous scheduling, and the newer runner."""
        return str(request.param)

    @pytest.fixture(params=SCHEDULERS)
    def scheduler(request: pytest.FixtureRequest) -> str | None:
        """Scheduler classes under test: vLLM's own, and ours."""
        return SCHEDULERS[request.param]

    @pytest.fixture(scope="session")
    def lets_in(tmp_path_factory: pytest.TempPathFactory) -> Additional:
        """`additional=lets_in`: settings with which ours holds nobody back for the memory that it predicts."""
        file = tmp_path_factory.mktemp("settings") / "settings.json"
        file.write_text('{"engine": {"kvTokens": 1000000}}', encoding="utf-8")
        return (("sagesched_settings", str(file)),)

    @pytest.fixture
    def world(model_folder: Path, mode: str, scheduler: str | None) -> MakeWorld:
        """`world(slots=2, ...)`: an engine of that shape in each mode and with each scheduler."""
        return lambda **shape: World(model_folder, Shape(mode=mode, scheduler=scheduler, **shape))
