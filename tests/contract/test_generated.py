"""One schema, generated copies: a stale copy fails."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_generated_copies_are_those_of_the_schema() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "generate.py"), "--check"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def test_the_wire_package_runs_with_the_oldest_libraries_that_are_allowed() -> None:
    """Generated code refuses libraries older than its compiler."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]["rpc"]
    oldest = dict(dependency.split(">=") for dependency in wanted)
    code = (ROOT / "proto/sagesched_pb/v1/scheduling_pb2.py").read_text("utf-8")
    made_by = re.search(r"PUBLIC,\s+(\d+),\s+(\d+),\s+(\d+),", code)
    assert made_by
    assert oldest["protobuf"] == ".".join(made_by.groups())
    code = (ROOT / "proto/sagesched_pb/v1/scheduling_pb2_grpc.py").read_text("utf-8")
    assert f"GRPC_GENERATED_VERSION = '{oldest['grpcio']}'" in code
