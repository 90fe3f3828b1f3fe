"""The tests of schedulers without a model on every minor version of vLLM from 0.29 to the newest on PyPI.

`engine_versions.py [VERSION ...] [--docs]` makes an environment for each version outside the repository, where there
is none yet, runs tests/harness in it, says how far it is, ends with a table, and writes build/engine-versions.json.
With `--docs` the table in docs/engine-versions.md becomes this run's. Ends with 1 where a version failed. Needs uv.
"""

import argparse
import json
import re
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from dataclasses import asdict, dataclass

import engine_environment
import version_environment
from engine_environment import ROOT, EngineFailed, say
from version_environment import Environment

OLDEST = (0, 29)
OUTPUT = ROOT / "build" / "engine-versions"
DOCS = ROOT / "docs" / "engine-versions.md"
LIMIT_S = 1800.0
"""Of one version's tests."""
TABLE = re.compile(r"(<!-- made by make test-engine-versions -->\n).*?(<!-- end -->)", re.S)


@dataclass
class Result:
    """What one version's run came to."""

    version: str
    torch: str = ""
    passed: int = 0
    failed: int = 0
    passed_stock: int = 0
    seconds: float = 0.0
    problem: str = ""

    @property
    def is_good(self) -> bool:
        """Whether everything ran, and passed."""
        return not self.problem and not self.failed and self.passed > 0


def released() -> list[str]:
    """The newest patch of each minor version from the oldest on, as the package index has them. Raises EngineFailed."""
    ask = [sys.executable, "-m", "pip", "index", "versions", "vllm", "--disable-pip-version-check"]
    done = subprocess.run(ask, capture_output=True, text=True, check=False, timeout=300)  # noqa: S603
    if done.returncode:
        raise EngineFailed(f"the package index does not say which versions there are: {done.stderr.strip()[-300:]}")
    newest: dict[tuple[int, int], tuple[int, str]] = {}
    for major, minor, patch in re.findall(r"(?<![\w.])(\d+)\.(\d+)\.(\d+)(?![\w.])", done.stdout):
        key, candidate = (int(major), int(minor)), (int(patch), f"{major}.{minor}.{patch}")
        newest[key] = max(newest.get(key, candidate), candidate)
    found = [newest[key][1] for key in sorted(newest) if key >= OLDEST]
    if not found:
        raise EngineFailed(f"no version is in what the package index says: {done.stdout[:300]}")
    return found


def examine(version: str) -> Result:
    """Make its environment and run the tests there; a failure is a result."""
    result, began = Result(version), time.monotonic()
    try:
        environment = version_environment.made(version)
        result.torch = environment.pinned("torch")
        run_tests(environment, result)
    except (EngineFailed, subprocess.TimeoutExpired, OSError) as error:
        result.problem = str(error)
    result.seconds = round(time.monotonic() - began, 1)
    return result


def run_tests(environment: Environment, result: Result) -> None:
    """Run them, their output in build/engine-versions, and count. Raises TimeoutExpired, EngineFailed."""
    log, report = OUTPUT / f"{result.version}.log", OUTPUT / f"{result.version}.xml"
    report.unlink(missing_ok=True)
    say(f"{result.version}: tests, output in {log.relative_to(ROOT)}")
    script = [sys.executable, str(ROOT / "scripts" / "engine_harness.py"), "--environment", str(environment.folder)]
    with log.open("wb") as output:
        status = subprocess.run(  # noqa: S603
            [*script, "-q", f"--junitxml={report}"],
            stdout=output,
            stderr=subprocess.STDOUT,
            timeout=LIMIT_S,
            check=False,
        ).returncode
    if not report.exists():
        end = " | ".join(log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-3:])
        raise EngineFailed(f"the tests did not start (status {status}): {end}")
    for case in ET.parse(report).iter("testcase"):  # noqa: S314
        is_failed = any(child.tag in ("failure", "error", "skipped") for child in case)
        result.failed += is_failed
        result.passed += not is_failed
        result.passed_stock += not is_failed and "stock" in case.get("name", "")
    if status and not result.failed:
        result.problem = f"pytest ended with {status}"


def table(results: list[Result]) -> str:
    """Lines of Markdown."""
    lines = ["| vLLM | torch | tests passed | of these, vLLM's own scheduler | |", "|---|---|---|---|---|"]
    for one in results:
        said = "works" if one.is_good else one.problem or f"{one.failed} failed"
        lines.append(f"| {one.version} | {one.torch} | {one.passed} | {one.passed_stock} | {said} |")
    return "\n".join(lines) + "\n"


def write_docs(results: list[Result]) -> None:
    """The table in the documentation becomes this run's."""
    text = DOCS.read_text(encoding="utf-8")
    DOCS.write_text(TABLE.sub(lambda found: found[1] + table(results) + found[2], text), encoding="utf-8")


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("versions", nargs="*", help="these alone, as 0.33.0")
    parser.add_argument("--docs", action="store_true", help="write the table into docs/engine-versions.md")
    chosen = parser.parse_args()
    lacks = engine_environment.missing()
    for lack in lacks:
        say(f"cannot run here, it needs {lack}")
    if lacks:
        return engine_environment.EXIT_MISSING
    OUTPUT.mkdir(parents=True, exist_ok=True)
    try:
        versions = chosen.versions or released()
    except (EngineFailed, subprocess.TimeoutExpired) as failed:
        say(str(failed))
        return 1
    say(f"versions: {', '.join(versions)}")
    results = []
    for version in versions:
        results.append(examine(version))
        last = results[-1]
        say(f"{version}: {last.passed} passed, {last.failed} failed, {last.seconds:.0f} s. {last.problem}")
        (OUTPUT.parent / "engine-versions.json").write_text(
            json.dumps({"results": [asdict(one) for one in results]}, indent=2) + "\n", encoding="utf-8"
        )
    print(table(results))
    is_good = all(one.is_good for one in results)
    if chosen.docs and is_good and not chosen.versions:
        write_docs(results)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
