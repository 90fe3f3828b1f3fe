"""The settings file beside the engine: read whole, watched by content, refused where it is wrong."""

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sagesched.settings import Settings, SettingsError, decode, digest
from sagesched_vllm.settings_file import Loaded, Watch, load, pod_name, settings_path


def looked(watch: Watch) -> Loaded | SettingsError | None:
    """What two looks find."""
    watch.look()
    watch.look()
    return watch.take()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    made = tmp_path / "settings.yaml"
    made.write_text("scheduling: {policy: fcfs}\n", encoding="utf-8")
    return made


@pytest.fixture
def watch(file: Path) -> Watch:
    """One that only looks when it is told to."""
    return Watch(file, "pod-1", poll_s=3600)


def test_without_a_file_all_is_default() -> None:
    assert Watch(None, "").first == Loaded(Settings(), digest(Settings()))


def test_the_file_at_the_start_and_after_a_change(watch: Watch, file: Path) -> None:
    assert watch.first.settings.scheduling.policy == "fcfs"
    file.write_text('{"scheduling": {"bucketTokens": 7}}', encoding="utf-8")
    news = looked(watch)
    assert isinstance(news, Loaded)
    assert news.settings.scheduling.bucket_tokens == 7
    assert news.digest == digest(decode({"scheduling": {"bucketTokens": 7}}))
    assert looked(watch) is None, "and once"


def test_a_change_counts_when_two_looks_agree(watch: Watch, file: Path) -> None:
    file.write_text("scheduling: {bucketTokens: 1", encoding="utf-8")
    watch.look()
    file.write_text("scheduling: {bucketTokens: 10}\n", encoding="utf-8")
    watch.look()
    assert watch.take() is None
    watch.look()
    news = watch.take()
    assert isinstance(news, Loaded)
    assert news.settings.scheduling.bucket_tokens == 10


@pytest.mark.parametrize(
    ("content", "path"),
    [
        ("scheduling: {bucketTokens: 0}", "scheduling.bucketTokens"),
        ("scheduling: [", "the file"),
        ("[]", "the file"),
        ("", "the file"),
        ("stable: {scheduling: {polity: x}}", "stable.scheduling.polity"),
    ],
)
def test_a_wrong_file_is_refused_by_its_path_and_the_last_good_one_stays(
    watch: Watch, file: Path, content: str, path: str
) -> None:
    file.write_text(content, encoding="utf-8")
    news = looked(watch)
    assert isinstance(news, SettingsError)
    assert str(news).startswith(path)
    with pytest.raises(SettingsError, match=path):
        Watch(file, "")


def test_a_file_that_is_gone_is_told_once(watch: Watch, file: Path) -> None:
    file.unlink()
    assert isinstance(looked(watch), SettingsError)
    assert looked(watch) is None
    file.write_text("{}", encoding="utf-8")
    assert isinstance(looked(watch), Loaded)


def test_the_pod_s_own_revision_and_no_shadow() -> None:
    document = {
        "stable": {"scheduling": {"policy": "sjf", "shadow": {"policy": "fcfs"}}},
        "candidate": {"pods": ["pod-1"], "settings": {"scheduling": {"policy": "mean"}}},
    }
    own, other = (load(json.dumps(document).encode(), pod) for pod in ("pod-1", "pod-2"))
    assert (own.revision, own.settings.scheduling.policy) == ("candidate", "mean")
    assert (other.revision, other.settings.scheduling.policy) == ("stable", "sjf")
    assert other.settings.scheduling.shadow is None, "compared in the sidecar alone"
    assert other.digest == digest(decode(document["stable"])), "as the sidecar's own"


def test_where_the_file_is() -> None:
    environment = {"SAGESCHED_SETTINGS": "/etc/a", "HOSTNAME": "host"}
    assert settings_path({}, environment) == Path("/etc/a")
    assert settings_path({"sagesched_settings": "/etc/b"}, environment) == Path("/etc/b")
    assert settings_path("something else", {}) is None
    assert pod_name(environment) == "host"
    assert pod_name(environment | {"POD_NAME": "pod"}) == "pod"


def test_its_own_thread_finds_a_change(file: Path) -> None:
    watch = Watch(file, "", poll_s=0.01)
    file.write_text("scheduling: {policy: sjf}\n", encoding="utf-8")
    news = eventually(watch.take)
    watch.close()
    assert isinstance(news, Loaded)
    assert news.settings.scheduling.policy == "sjf"


def eventually(take: Callable[[], Loaded | SettingsError | None]) -> Loaded | SettingsError | None:
    deadline_s = time.monotonic() + 60
    while (news := take()) is None and time.monotonic() < deadline_s:
        time.sleep(0.01)
    return news
