"""The sidecar's process, with every file that it opens written down: `python -m audited_sidecar ...`.

The list goes to the file that AUDIT_FILE names, a path a line, as Python's own audit hook sees them; before them stands
its environment, as `NAME=value` lines.
"""

import os
import runpy
import sys
from typing import Any

_list = os.open(os.environ["AUDIT_FILE"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

for _name, _value in os.environ.items():
    os.write(_list, f"{_name}={_value!r}\n".encode())


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "open" and isinstance(arguments[0], str | bytes):
        os.write(_list, os.fsencode(os.path.abspath(os.fsdecode(arguments[0]))) + b"\n")
    if event in ("os.listdir", "os.scandir") and arguments[0] is not None:
        os.write(_list, os.fsencode(os.path.abspath(os.fsdecode(arguments[0]))) + b"\n")


sys.addaudithook(_note)
runpy.run_module("sagesched_sidecar", run_name="__main__", alter_sys=True)
