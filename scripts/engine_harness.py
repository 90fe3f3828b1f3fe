"""The tests of schedulers without a model (tests/harness), run inside an engine's own Python.

`engine_harness.py [--environment FOLDER] [pytest's arguments, files relative to tests/harness]`; FOLDER holds
`env/bin/python` with vLLM, by default that of `make test-engine`. Of SageSched only `core` and `plugin` are to be seen
there, and pytest comes after all packages of the engine: what a scheduler imports beyond its needs is not found.
"""

import argparse
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import engine_environment
from engine_environment import ROOT, EngineFailed

LOCK = ROOT / "requirements" / "harness.txt"
TESTS = ROOT / "tests" / "harness"
SHIPPED = (ROOT / "core", ROOT / "plugin")
"""What an engine's image gets."""
START = "import sys; sys.path.extend({paths!r}); import pytest; sys.exit(pytest.main(sys.argv[1:]))"


def tools_folder() -> Path:
    """pytest for the engine's Python, made where it is not there yet. Raises EngineFailed."""
    key = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:12]
    folder = engine_environment.cache_folder() / f"harness-{key}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with engine_environment.only_one(folder.with_suffix(".lock")):
        if not engine_environment.is_complete(folder):
            folder.mkdir(exist_ok=True)
            pip = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-deps", "--upgrade"]
            target = ["--require-hashes", "--target", str(folder / "packages"), "-r", str(LOCK)]
            engine_environment.run("pytest for the engine's Python", [*pip, *target], folder)
            (folder / "complete").touch()
    return folder / "packages"


def command(environment: Path, arguments: list[str]) -> list[str]:
    """How pytest is started there."""
    paths = [*map(str, SHIPPED), str(tools_folder())]
    options = ["-c", "pytest.ini", "--rootdir", ".", "--confcutdir", "."]
    python = str(environment / "env" / "bin" / "python")
    return [python, "-c", START.format(paths=paths), *options, *arguments]


def main() -> int:
    """pytest's status; 3 where no engine can run here, which is an error in CI alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environment", type=Path, default=engine_environment.engine_folder())
    chosen, arguments = parser.parse_known_args()
    lacks = engine_environment.missing()
    if not lacks and not (chosen.environment / "env" / "bin" / "python").exists():
        lacks = [f"the environment {chosen.environment}, which `make test-engine` makes"]
    for lack in lacks:
        engine_environment.say(f"no scheduler is tested without a model here: it needs {lack}")
    if lacks:
        return engine_environment.EXIT_MISSING if os.environ.get("CI", "").lower() in {"1", "true", "yes"} else 0
    try:
        run = command(chosen.environment, arguments)
    except EngineFailed as failed:
        engine_environment.say(str(failed))
        return 1
    model = chosen.environment / "model"
    environment = engine_environment.environment() | ({"HARNESS_MODEL": str(model)} if model.exists() else {})
    return subprocess.run(run, cwd=TESTS, env=environment, check=False).returncode  # noqa: S603


if __name__ == "__main__":
    sys.exit(main())
