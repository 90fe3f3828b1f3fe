"""The images' recipe, without building: what it copies is there, and its locks are whole."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKERFILE = (ROOT / "Dockerfile").read_text("utf-8")


TARGETS = {"sidecar": "sidecar", "operator": "operator", "engine-sim": "sim"}
"""By stage, the extra that is in it."""


def test_what_is_copied_is_there() -> None:
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.M)
    assert copied
    for name in (word for line in copied for word in line.split()):
        assert (ROOT / name).exists(), name


@pytest.mark.parametrize(("target", "extra"), TARGETS.items())
def test_every_target_has_a_stage_and_a_lock_of_its_extra(target: str, extra: str) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    assert f"AS {target}\n" in DOCKERFILE
    assert f"requirements/{extra}.txt" in DOCKERFILE
    lock = (ROOT / f"requirements/{extra}.txt").read_text("utf-8")
    for wanted in extras[extra]:
        name = re.split(r"[>=<;\[]", wanted)[0].strip()
        assert name == "sagesched" or re.search(rf"^{name}==", lock, re.M), name
    assert "torch" not in lock


def test_no_image_runs_as_root() -> None:
    assert "USER 10001:10001" in DOCKERFILE
    assert DOCKERFILE.count("FROM run AS") == len(TARGETS)
