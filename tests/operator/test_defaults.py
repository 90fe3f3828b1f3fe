"""The ConfigMap of defaults, and the command line."""

from typing import Any

import pytest

from sagesched.settings import SettingsError
from sagesched_operator.defaults import Defaults, parsed
from sagesched_operator.options import parse


def config_map(text: str | None) -> dict[str, Any]:
    return {"metadata": {"namespace": "system", "name": "d"}, "data": {} if text is None else {"settings.yaml": text}}


def test_a_change_is_told_once_and_a_wrong_one_names_the_field() -> None:
    defaults = Defaults("system", "d")
    assert defaults.is_it(config_map(None))
    assert defaults.take(config_map("scheduling: {bucketTokens: 50}"))
    assert not defaults.take(config_map("scheduling: {bucketTokens:   50}"))
    assert defaults.now() == {"scheduling": {"bucketTokens": 50}}
    assert defaults.take(config_map("scheduling: {bucketTokens: x}"))
    with pytest.raises(SettingsError, match=r"^defaults\.scheduling\.bucketTokens"):
        defaults.now()
    assert defaults.take(None)
    assert defaults.now() == {}


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ({"settings.yaml": "a: [b"}, "defaults.settings.yaml: is not YAML"),
        ({"settings.yaml": "- a"}, "defaults.settings.yaml: must hold sections"),
        ({"settings.yml": "{}"}, "defaults: key settings.yml"),
    ],
)
def test_what_is_no_settings_says_why(data: dict[str, str], path: str) -> None:
    with pytest.raises(SettingsError, match=path):
        parsed(data)


def test_the_command_line() -> None:
    images = ["--sidecar-image", "s", "--simulator-image", "i", "--vllm-image", "v"]
    options = parse([*images, "--defaults", "system/d", "--namespace", "a", "--namespace", "b"])
    assert (options.defaults_namespace, options.defaults_name, options.namespaces) == (
        "system",
        "d",
        ("a", "b", "system"),
    )
    assert parse(images).namespaces == ()
    with pytest.raises(SystemExit):
        parse(images[2:])
