"""Who gets which core when an engine is measured."""

import json
import subprocess
import sys

SCRIPT = """
import json, os, subprocess
from bench.engine.cores import keep_apart

cores = sorted(os.sched_getaffinity(0))
server = subprocess.Popen(["vllm", "60"], executable="/bin/sleep", process_group=0)
model = subprocess.Popen(["VLLM::Worker", "60"], executable="/bin/sleep", process_group=server.pid)
os.sched_setaffinity(model.pid, cores[:1])
keep_apart(server.pid)
print(json.dumps([cores, *(sorted(os.sched_getaffinity(pid)) for pid in (model.pid, server.pid, 0))]))
for child in (server, model):
    child.kill()
    child.wait()
"""


def test_the_model_has_the_first_core_and_everything_else_the_others() -> None:
    """In a process of its own, which loses a core by it."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    cores, model, server, own = json.loads(done.stdout)
    others = cores[1:] or cores
    assert (model, server, own) == (cores[:1], others, others)
