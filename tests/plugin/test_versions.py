"""Which vLLM the scheduler runs in."""

import pytest

from sagesched_vllm.versions import NEWEST, OLDEST, UnsupportedVersion, check_version


@pytest.mark.parametrize("version", ["0.29.0", "0.32.0+cpu", "0.33.1rc1", f"{NEWEST[0]}.{NEWEST[1]}.9"])
def test_a_tested_version_is_taken_without_a_word(version: str) -> None:
    assert check_version(version) is None


@pytest.mark.parametrize("version", ["0.34.0", "1.0.0", "0.32.0.dev7+gabc", "unknown"])
def test_an_unknown_one_is_warned_of(version: str) -> None:
    warning = check_version(version)
    assert warning
    assert version in warning
    assert f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}" in warning


@pytest.mark.parametrize("version", ["0.28.9", "0.9.2", "0.28.0.post1+cu129"])
def test_an_older_one_is_refused_with_the_reason(version: str) -> None:
    with pytest.raises(UnsupportedVersion, match=r"too old.*needs 0\.29 to.*Upgrade vLLM"):
        check_version(version)
