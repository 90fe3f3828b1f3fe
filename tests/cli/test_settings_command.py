"""`settings check` and `settings diff`: files in, lines or JSON out, exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest

from sagesched.settings import decode, digest
from sagesched_cli.__main__ import main
from sagesched_cli.demo.children import child


def file(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def ended(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["settings", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Any]:
    code, out, _ = ended(capsys, *arguments, "--json")
    return code, json.loads(out)


def test_a_valid_file_has_a_digest_and_warnings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = file(tmp_path, "s.yaml", "scheduling: {policy: fcfs, boost: 1}\n")
    wanted = digest(decode({"scheduling": {"policy": "fcfs", "boost": 1}}))
    code, out, err = ended(capsys, "check", good)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        f"{good}: stable: valid, digest {wanted}",
        f"{good}: stable: warning: scheduling.boost has no effect: policy fcfs has no boost",
    ]
    code, found = document(capsys, "check", good)
    assert (code, found["valid"], found["problems"]) == (0, True, [])
    assert found["revisions"][0]["digest"] == wanted
    assert [one["path"] for one in found["revisions"][0]["idle"]] == ["scheduling.boost"]


def test_both_revisions_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = file(tmp_path, "s.yaml", "stable: {}\ncandidate: {pods: [a, b], settings: {queue: {maxRequests: 5}}}\n")
    code, out, _ = ended(capsys, "check", both)
    assert code == 0
    assert out.splitlines()[1].endswith(f"digest {digest(decode({'queue': {'maxRequests': 5}}))}, for a, b")
    bad = file(tmp_path, "b.yaml", "stable: {}\ncandidate: {settings: {queue: {maxRequests: 0}}}\n")
    code, out, _ = ended(capsys, "check", bad)
    assert code == 64
    assert out.startswith(f"{bad}: candidate.settings.queue.maxRequests: ")


def test_every_wrong_field_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = file(tmp_path, "s.yaml", "queue: {maxRequests: 0}\nscheduling: {policy: lifo, boots: 1}\n")
    code, out, _ = ended(capsys, "check", bad)
    assert code == 64
    paths = {line.split(": ")[1] for line in out.splitlines()}
    assert paths == {"queue.maxRequests", "scheduling.policy", "scheduling.boots"}
    code, found = document(capsys, "check", bad)
    assert (code, found["valid"], found["revisions"]) == (64, False, [])
    assert {one["path"] for one in found["problems"]} == paths


@pytest.mark.parametrize("text", ["a: [", "\x00", None])
@pytest.mark.parametrize("action", ["check", "diff"])
def test_what_is_no_file_of_settings_ends_with_64(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str | None, action: str
) -> None:
    path = str(tmp_path / "none") if text is None else file(tmp_path, "s.yaml", text)
    code, out, err = ended(capsys, action, path, *([path] if action == "diff" else []))
    assert (code, out) == (64, "")
    assert path in err


def test_differences_say_what_needs_a_restart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one = file(tmp_path, "a.yaml", "scheduling: {policy: sjf}\n")
    other = file(tmp_path, "b.json", '{"scheduling": {"policy": "mean"}, "engine": {"apiKeyEnv": "KEY"}}')
    code, out, _ = ended(capsys, "diff", one, other)
    assert code == 1
    assert out.splitlines()[0] == 'scheduling.policy: "sjf" -> "mean" (live)'
    assert out.splitlines()[1].startswith('engine.apiKeyEnv: null -> "KEY" (needs a restart: ')
    code, found = document(capsys, "diff", one, other)
    assert [(c["path"], c["live"]) for c in found["changes"]] == [
        ("scheduling.policy", True),
        ("engine.apiKeyEnv", False),
    ]
    same = file(tmp_path, "c.yaml", "# the same\nscheduling:\n  policy: sjf\n")
    assert ended(capsys, "diff", one, same) == (0, "", "")
    wrong = file(tmp_path, "d.yaml", "queue: {maxRequests: 0}\n")
    assert ended(capsys, "diff", one, wrong)[0] == 64


def test_one_file_s_revisions_can_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = file(tmp_path, "s.yaml", "stable: {}\ncandidate: {pods: [a], settings: {queue: {maxRequests: 5}}}\n")
    code, out, _ = ended(capsys, "diff", both)
    assert (code, out) == (1, "queue.maxRequests: 10000 -> 5 (live)\n")
    assert ended(capsys, "diff", both, both, "--revision", "candidate")[0] == 0
    plain = file(tmp_path, "p.yaml", "{}\n")
    code, _, err = ended(capsys, "diff", plain)
    assert code == 64
    assert "candidate" in err


async def test_a_running_sidecar_can_be_compared_with_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = file(tmp_path, "s.yaml", "scheduling: {policy: fcfs}\nengine: {slots: 4}\n")
    arguments = ("--upstream", "http://127.0.0.1:9", "--port", "0", "--settings", wanted, "--slots", "7")
    async with child("sagesched_sidecar", arguments, tmp_path / "sidecar.log") as url:
        code, out, _ = ended(capsys, "diff", url, wanted)
        assert (code, out) == (1, "engine.slots: 7 -> 4 (live)\n")
        assert ended(capsys, "diff", url, url) == (0, "", "")
        assert ended(capsys, "diff", url)[0] == 64
    assert ended(capsys, "diff", url, wanted)[0] == 69
    assert ended(capsys, "diff", "http://", wanted)[0] == 64


def test_help_and_a_missing_action_are_as_elsewhere(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, code in ((["settings"], 64), (["settings", "chekc"], 64), (["settings", "check", "--help"], 0)):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == code
        capsys.readouterr()
