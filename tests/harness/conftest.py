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

    @pytest.fixture(scope="session")
    def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
        """A model without weights."""
        return write_model_folder(tmp_path_factory.mktemp("model"))

    @pytest.fixture(params=MODES)
    def mode(request: pytest.FixtureRequest) -> str:
        """Synchronous and asynchronous scheduling, and the newer runner."""
        return str(request.param)

    @pytest.fixture(params=["stock"])
    def scheduler(request: pytest.FixtureRequest) -> str | None:
        """Scheduler classes under test: vLLM's own."""
        return None

    @pytest.fixture
    def world(model_folder: Path, mode: str, scheduler: str | None) -> MakeWorld:
        """`world(slots=2, ...)`: an engine of that shape in each mode and with each scheduler."""
        return lambda **shape: World(model_folder, Shape(mode=mode, scheduler=scheduler, **shape))
