"""The demo's child processes: started, waited for until they tell their address, always ended."""

import asyncio
import contextlib
import json
import os
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from sagesched_cli.demo.errors import DemoError

START_LIMIT_S = 60.0
STOP_LIMIT_S = 5.0
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Engine, sidecar and client share few cores; idle threads of a linear algebra library would spin on them."""
_POLL_S = 0.02
_TAIL_LINES = 15


@contextlib.asynccontextmanager
async def child(module: str, arguments: Sequence[str], log: Path) -> AsyncIterator[str]:
    """`python -m module arguments`, its output in `log`; the value is the URL that it printed once ready.

    The process is ended on the way out, whatever happened. Raises DemoError naming the log when it does not start.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=os.environ | ONE_THREAD,
        )
    try:
        yield await _address(process, module, log)
    finally:
        await _end(process)


async def _address(process: asyncio.subprocess.Process, module: str, log: Path) -> str:
    """The address among the JSON lines of the log."""
    deadline_s = asyncio.get_running_loop().time() + START_LIMIT_S
    while asyncio.get_running_loop().time() < deadline_s:
        ended = process.returncode
        if url := _url_in(log):
            return url
        if ended is not None:
            raise DemoError(f"{module} ended with {ended} before it was ready; see {log}")
        await asyncio.sleep(_POLL_S)
    raise DemoError(f"{module} was not ready after {START_LIMIT_S:.0f} s; see {log}")


def _url_in(log: Path) -> str | None:
    for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            match json.loads(line):
                case {"url": str(url)}:
                    return url
                case {"listening": {"host": host, "port": port}}:
                    return f"http://{host}:{port}"
    return None


async def _end(process: asyncio.subprocess.Process) -> None:
    """Asks it to end, and makes it end where it does not."""
    if process.returncode is not None:
        return
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        try:
            await asyncio.wait_for(process.wait(), STOP_LIMIT_S)
        except TimeoutError:
            process.kill()
            await process.wait()


def tail(log: Path) -> str:
    """The last lines of a log."""
    if not log.is_file():
        return "(no log)"
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_TAIL_LINES:])
