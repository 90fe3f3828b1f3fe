"""The programs of a real control plane, built from Go modules, outside the repository: `make` them, or say `where`.

Needs the standard library and Go. The folder is $SAGESCHED_CACHE, or $XDG_CACHE_HOME/sagesched, or ~/.cache/sagesched;
in it one folder for each set of locks, so that a changed lock makes a new one and the old one stays.
"""

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

from engine_environment import cache_folder, only_one

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ROOT / "tests" / "cluster" / "tools"
KUBERNETES = "v1.36.3"
GO = (1, 26)
DISK_BYTES = 8 << 30
"""Go's caches of modules and of compiled packages take 3 GB, the programs 0.2 GB."""
EXIT_MISSING = 3
_VERSION = "k8s.io/component-base/version"
LINK = (
    f"-s -w -X {_VERSION}.gitVersion={KUBERNETES} -X {_VERSION}.gitMajor=1 "
    f"-X {_VERSION}.gitMinor={KUBERNETES.split('.')[1]}"
)
"""Without the version the API server calls itself v0.0.0."""


class Program(NamedTuple):
    """A program: the module of tools that pins it, and its package there."""

    module: str
    package: str


PROGRAMS = {
    "etcd": Program("etcd", "go.etcd.io/etcd/server/v3"),
    "kube-apiserver": Program("kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver"),
    "kubectl": Program("kubernetes", "k8s.io/kubernetes/cmd/kubectl"),
}


class BuildFailed(Exception):
    """A program did not build; the message says which and why."""


def binaries_folder() -> Path:
    """This set of locks' folder: another lock or another set of flags is another folder."""
    locks = [path.read_bytes() for path in sorted(TOOLS.glob("*/go.sum"))]
    parts = [*locks, LINK.encode()]
    return cache_folder() / f"cluster-{hashlib.sha256(b'|'.join(parts)).hexdigest()[:12]}"


def missing() -> list[str]:
    """What this machine lacks, each with the remedy; empty where the programs can be built and run."""
    if not sys.platform.startswith("linux"):
        return [f"Linux, which Kubernetes' API server is built for; this is {sys.platform}"]
    if is_complete(binaries_folder()):
        return []
    go = shutil.which("go")
    if go is None:
        return [f"Go {GO[0]}.{GO[1]} or newer, to build Kubernetes: https://go.dev/dl"]
    said = subprocess.run([go, "version"], capture_output=True, text=True, check=False).stdout  # noqa: S603
    words = said.split()
    found = words[2].removeprefix("go") if len(words) > 2 else "unknown"
    numbers = found.split(".")[:2]
    if not all(n.isdecimal() for n in numbers) or tuple(map(int, numbers)) < GO:
        return [f"Go {GO[0]}.{GO[1]} or newer, to build Kubernetes; this is {found}"]
    return []


def is_complete(folder: Path) -> bool:
    """Whether every program was built in that folder."""
    return all((folder / name).is_file() for name in PROGRAMS)


def make(folder: Path) -> None:
    """Build what is not there yet. A second process waits for the first. Raises BuildFailed."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with only_one(folder.with_suffix(".lock")):
        if is_complete(folder):
            return
        free = shutil.disk_usage(folder.parent).free
        if free < DISK_BYTES:
            raise BuildFailed(f"{folder.parent} has {free >> 30} GB free; {DISK_BYTES >> 30} GB are needed")
        folder.mkdir(exist_ok=True)
        for name, program in PROGRAMS.items():
            if not (folder / name).exists():
                build(name, program, folder)


def build(name: str, program: Program, folder: Path) -> None:
    """One program, under its own name once it is whole. Raises BuildFailed."""
    began = time.monotonic()
    say(f"building {name}")
    unfinished = folder / f"{name}.unfinished"
    command = ["go", "build", "-trimpath", "-ldflags", LINK, "-o", str(unfinished), program.package]
    environment = os.environ | {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    done = subprocess.run(  # noqa: S603
        command, cwd=TOOLS / program.module, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise BuildFailed(f"{name}: {done.stderr[-2000:]}")
    unfinished.rename(folder / name)
    say(f"  {time.monotonic() - began:.0f} s")


def say(what: str) -> None:
    """A line of progress, at once."""
    print(f"cluster: {what}", file=sys.stderr, flush=True)


def main() -> int:
    """`make` ends with 0 also where the machine cannot: the tests then name and count what did not run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "where"), help="where: the folder, or 3 and what is missing")
    what = parser.parse_args().what
    folder, lacks = binaries_folder(), missing()
    if what == "where":
        if not lacks and not is_complete(folder):
            lacks = ["its programs, which `make test-cluster` builds"]
        print("\n".join(lacks) if lacks else folder)
        return EXIT_MISSING if lacks else 0
    for lack in lacks:
        say(f"cannot run here, it needs {lack}")
    if lacks:
        return 0
    try:
        make(folder)
    except BuildFailed as failed:
        say(str(failed))
        return 1
    say(f"ready: {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
