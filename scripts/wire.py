"""The wire package: proto/sagesched/v1 compiled into proto/sagesched_pb, with stubs for the type checker.

protoc names Python modules after the folders of the .proto files, which would be a second `sagesched`; here they are
moved to `sagesched_pb`, and their imports with them. The names on the wire stay `sagesched.v1`.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGE = "sagesched_pb"
INIT = '"""The wire contract `sagesched.v1`, generated from proto/sagesched/v1 by `make gen`; do not edit."""\n'
_IMPORT = re.compile(r"^from sagesched\.v1 import", re.M)


def wire_package(root: Path) -> dict[str, str]:
    """Path below `root` and text of each generated file. Raises CalledProcessError where the .proto files are wrong."""
    files = {f"proto/{PACKAGE}/{name}": text for name, text in (("__init__.py", INIT), ("py.typed", ""))}
    files[f"proto/{PACKAGE}/v1/__init__.py"] = INIT
    with tempfile.TemporaryDirectory() as folder:
        _compile(root / "proto", Path(folder))
        for path in sorted(Path(folder, "sagesched", "v1").iterdir()):
            text = _IMPORT.sub(f"from {PACKAGE}.v1 import", path.read_text(encoding="utf-8"))
            files[f"proto/{PACKAGE}/v1/{path.name}"] = text
    return files


def _compile(proto: Path, into: Path) -> None:
    scripts = Path(sys.executable).parent
    sources = sorted(str(path.relative_to(proto)) for path in proto.glob("sagesched/v1/*.proto"))
    command = [
        *(sys.executable, "-m", "grpc_tools.protoc", f"-I{proto}"),
        *(f"--plugin={scripts / name}" for name in ("protoc-gen-mypy", "protoc-gen-mypy_grpc")),
        *(f"--{kind}_out=quiet:{into}" for kind in ("mypy", "mypy_grpc")),
        *(f"--{kind}_out={into}" for kind in ("python", "grpc_python")),
        *sources,
    ]
    subprocess.run(command, check=True)  # noqa: S603
