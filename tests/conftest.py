"""What a machine cannot run is named and counted in the summary, and is an error when CI=true."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import real_engine
import real_qdrant
from hypothesis import settings

IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}

# No law is about time, and a run that decides whether a change lands should say the same twice.
settings.register_profile("sagesched", deadline=None, derandomize=IN_CI)
settings.load_profile("sagesched")


def _skipped(reporter: pytest.TerminalReporter) -> list[str]:
    reports = reporter.stats.get("skipped", [])
    return [f"{r.nodeid}: {r.longrepr[2] if isinstance(r.longrepr, tuple) else r.longrepr}" for r in reports]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = _skipped(terminalreporter)
    if skipped:
        terminalreporter.section(f"{len(skipped)} not run on this machine" + (": an error in CI" if IN_CI else ""))
        for line in skipped:
            terminalreporter.write_line(line)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if IN_CI and exitstatus == pytest.ExitCode.OK and reporter is not None and _skipped(reporter):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A run that chooses tiers by their markers has this one where it names it: `-m qdrant`."""
    chosen = str(config.option.markexpr)
    if not chosen or "qdrant" in chosen:
        return
    left_out = [item for item in items if item.get_closest_marker("qdrant")]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if not item.get_closest_marker("qdrant")]


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[real_engine.Engines]:
    """Real vLLM, started when a test asks for it, one process for each set of arguments."""
    found = real_engine.environment_folder()
    if isinstance(found, str):
        pytest.skip(found)
    running = real_engine.Engines(found, tmp_path_factory.mktemp("engines"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def qdrant(tmp_path_factory: pytest.TempPathFactory) -> Iterator[real_qdrant.Qdrant]:
    """A real Qdrant server of the session's own; that of QDRANT_URL where it is set."""
    found = real_qdrant.binary()
    if found is None:
        pytest.skip(real_qdrant.MISSING)
    server = real_qdrant.Qdrant(found, tmp_path_factory.mktemp("qdrant"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def collections(qdrant: real_qdrant.Qdrant) -> Iterator[real_qdrant.Collections]:
    """Collections of the test's own."""
    made = real_qdrant.Collections(qdrant.url)
    yield made
    made.delete()


@pytest.fixture
def own_qdrant(tmp_path: Path) -> Iterator[real_qdrant.Qdrant]:
    """A server of the test's own, which it may kill and start again."""
    found = real_qdrant.binary()
    if found is None:
        pytest.skip(real_qdrant.MISSING)
    server = real_qdrant.Qdrant(found, tmp_path)
    server.start()
    yield server
    server.kill()
