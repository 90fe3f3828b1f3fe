"""An environment with one version of vLLM, to test schedulers in: vLLM's own distribution without what only GPUs need.

Versions are not locked one by one. Each is resolved with the pins of requirements/engine.txt preferred wherever that
vLLM allows them, so that what is not said by vLLM stays as it was tested, and uv links files that environments share.
"""

import hashlib
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

import engine_environment
from engine_environment import LOCK, ROOT, EngineFailed, run

OVERRIDES = ROOT / "requirements" / "engine-versions.overrides"
RECIPE = b"1"
"""Another one where a step of this file changes what is made."""
DISK_BYTES = 12 << 30
"""The first one loads 3 GB and unpacks 6; later ones share most of that."""


@dataclass(frozen=True)
class Environment:
    """Where it is."""

    folder: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "env" / "bin" / "python"

    def pinned(self, package: str) -> str:
        """Which version of a package it has; empty where none."""
        pins = (self.folder / "requirements.txt").read_text(encoding="utf-8")
        found = re.search(rf"^{re.escape(package)}==(\S+)", pins, re.M)
        return found[1] if found else ""


def made(version: str) -> Environment:
    """The environment of that version, made where it is not there yet. Raises EngineFailed."""
    key = hashlib.sha256(b"|".join([LOCK.read_bytes(), OVERRIDES.read_bytes(), RECIPE])).hexdigest()[:12]
    environment = Environment(engine_environment.cache_folder() / f"vllm-{version}-{key}")
    folder = environment.folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    with engine_environment.only_one(folder.with_name(folder.name + ".lock")):
        if engine_environment.is_complete(folder):
            return environment
        uv = shutil.which("uv")
        if uv is None:
            raise EngineFailed("needs uv on PATH; get it with: pip install uv")
        if shutil.disk_usage(folder.parent).free < DISK_BYTES:
            raise EngineFailed(f"{folder.parent} has less than {DISK_BYTES >> 30} GB free")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        build(uv, version, environment)
        (folder / "complete").touch()
    return environment


def build(uv: str, version: str, environment: Environment) -> None:
    """Resolve, install, and say that it is a build for CPUs. Raises EngineFailed."""
    folder, python = environment.folder, environment.python
    wanted, pins = folder / "requirements.in", folder / "requirements.txt"
    wanted.write_text(f"vllm=={version}\n", encoding="utf-8")
    # uv takes what an output file holds already as what it should prefer.
    pins.write_bytes(LOCK.read_bytes())
    python_version = f"{sys.version_info.major}.{sys.version_info.minor}"
    target = ["--python-platform", "x86_64-manylinux_2_28", "--python-version", python_version]
    plain = ["--no-header", "--no-annotate", "--override", str(OVERRIDES)]
    run(
        f"vLLM {version}: which packages it needs",
        [uv, "pip", "compile", "-q", *target, *plain, str(wanted), "-o", str(pins)],
        folder,
    )
    run(
        f"vLLM {version}: an empty environment",
        [uv, "venv", "-q", "--python", sys.executable, str(folder / "env")],
        folder,
    )
    run(
        f"vLLM {version}: packages (up to 3 GB to load)",
        [uv, "pip", "install", "--no-deps", "--python", str(python), "-r", str(pins)],
        folder,
    )
    as_for_cpus(folder / "env", version)


def as_for_cpus(environment: Path, version: str) -> None:
    """vLLM takes a machine without a GPU only where its version says `cpu`. The file is written anew, for the one that
    is there is also the cache's."""
    for metadata in environment.glob(f"lib/python*/site-packages/vllm-{version}.dist-info/METADATA"):
        text = metadata.read_text(encoding="utf-8")
        metadata.unlink()
        metadata.write_text(re.sub(rf"^Version: {re.escape(version)}$", rf"Version: {version}+cpu", text, flags=re.M))
        return
    raise EngineFailed(f"vLLM {version} has no metadata in {environment}")
