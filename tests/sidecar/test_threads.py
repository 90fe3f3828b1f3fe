"""Linear algebra in the sidecar runs in one thread: several wait for one another on a busy machine."""

import os
import subprocess
import sys

import pytest

PROGRAM = "import sagesched_sidecar.__main__, os; print(os.environ['OPENBLAS_NUM_THREADS'])"


@pytest.mark.parametrize(("given", "used"), [({}, "1"), ({"OPENBLAS_NUM_THREADS": "3"}, "3")])
def test_one_thread_unless_the_environment_says_otherwise(given, used):
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, env=environment | given, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == used
