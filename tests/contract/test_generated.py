"""One schema, generated copies: a stale copy fails."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_generated_copies_are_those_of_the_schema() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "generate.py"), "--check"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
