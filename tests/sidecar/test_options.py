"""The command line and the settings file: all of it right, or exit 64 with the path of what is wrong."""

import pytest

from sagesched.settings import decode, digest
from sagesched_sidecar.options import EXIT_USAGE, parse_options

URL = ["--upstream", "http://127.0.0.1:8000"]


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        parse_options(arguments)
    assert ended.value.code == EXIT_USAGE == 64
    return capsys.readouterr().err


def test_the_defaults():
    options = parse_options(URL)
    assert (options.upstream, options.host, options.port) == ("http://127.0.0.1:8000", "127.0.0.1", 8080)
    assert options.api_key is None
    assert options.settings.scheduling.policy == "sagesched"


def test_flags_outweigh_the_file(tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text("scheduling: {policy: sjf, neighbours: 7}\nengine: {slots: 4}\n")
    options = parse_options([*URL, "--settings", str(file), "--policy", "fcfs", "--slots", "9", "--kv-tokens", "100"])
    assert (options.settings.scheduling.policy, options.settings.scheduling.neighbours) == ("fcfs", 7)
    assert (options.settings.engine.slots, options.settings.engine.kv_tokens) == (9, 100)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("scheduling: {policy: best}", "scheduling.policy"),
        ("engine: {slots: 0}", "engine.slots"),
        ("engine: {slot: 1}", "engine"),
        ("scheduling: {classes: [{name: a}, {name: a}]}", "scheduling.classes"),
        ("queue:", "queue"),
        ("history: {seedFile: /no/such/file}", "history.seedFile"),
        ("history: {seedFile: /}", "history.seedFile"),
        ("engine: {apiKeyEnv: SAGESCHED_NO_SUCH_VARIABLE}", "engine.apiKeyEnv"),
        ("engine: {apiKeyFile: /no/such/file}", "engine.apiKeyFile"),
        ("server: {maxBodyBytes: 1}", "server.maxBodyBytes"),
        ("just text", "--settings"),
        ("[1]", "--settings"),
        ("a: [", "--settings"),
    ],
)
def test_what_is_wrong_in_the_file_is_named(tmp_path, capsys, text, path):
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    assert f": {path}" in refused(capsys, *URL, "--settings", str(file))


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--upstream", "localhost:8000"],
        ["--upstream", "ftp://x"],
        ["--upstream", "http://"],
        ["--upstream", "http://user:secret@127.0.0.1:8000"],
        [*URL, "--port", "70000"],
        [*URL, "--policy", "best"],
        [*URL, "--slots", "-1"],
        [*URL, "--settings", "/no/such/file"],
        [*URL, "--no-such-flag"],
    ],
)
def test_wrong_flags_end_with_64(capsys, arguments):
    assert refused(capsys, *arguments).strip()


def test_the_key_comes_by_reference(tmp_path, monkeypatch):
    file = tmp_path / "key"
    file.write_text("from-file\n")
    assert parse_options([*URL, "--api-key-file", str(file)]).api_key == "from-file"
    monkeypatch.setenv("SAGESCHED_TEST_KEY", "from-environment")
    assert parse_options([*URL, "--api-key-env", "SAGESCHED_TEST_KEY"]).api_key == "from-environment"


def test_help_tells_every_flag_and_default(capsys):
    with pytest.raises(SystemExit) as ended:
        parse_options(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert ended.value.code == 0
    for part in (
        "--upstream",
        "default: 8080",
        "scheduling.policy; default: sagesched",
        "server.drainSeconds; default: 30.0",
    ):
        assert part in text


def test_the_revision_goes_by_the_pod_s_name(tmp_path, monkeypatch):
    file = tmp_path / "settings.yaml"
    file.write_text("stable: {}\ncandidate: {pods: [chat-1], settings: {scheduling: {policy: sjf}}}\n")
    given = [*URL, "--settings", str(file)]
    monkeypatch.setenv("HOSTNAME", "chat-1")
    monkeypatch.delenv("POD_NAME", raising=False)
    assert parse_options(given).loaded.revision == "candidate"
    monkeypatch.setenv("POD_NAME", "chat-0")
    assert parse_options(given).loaded.revision == "stable"
    options = parse_options([*given, "--pod-name", "chat-1", "--slots", "3"])
    assert (options.loaded.revision, options.settings.scheduling.policy, options.settings.engine.slots) == (
        "candidate",
        "sjf",
        3,
    )
    assert options.loaded.file_digest == digest(decode({"scheduling": {"policy": "sjf"}}))


@pytest.mark.parametrize("text", ["0", "-1", "x", "nan", "3601"])
def test_how_often_the_file_is_looked_at_is_bounded(capsys, text):
    assert "--settings-poll" in refused(capsys, *URL, "--settings-poll", text)
