"""`sagesched history` on a folder, and on a real Qdrant server."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import real_qdrant

from sagesched_cli.__main__ import main

Ended = tuple[int, str, str]
TRAFFIC = [
    {"prompt": "a zanzibar poem", "output_tokens": 30, "tenant": "a", "finished_s": 1_700_000_000.5},
    {"prompt": "a quartz poem", "output_tokens": 40, "tenant": "b", "max_tokens": 99},
    {"prompt": "zanzibar again", "output_tokens": 50, "censored": True},
]


@pytest.fixture(params=["folder", pytest.param("server", marks=pytest.mark.qdrant)])
def command(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    """`command(action, ...)` on a store that is empty."""
    where = ["--path", str(tmp_path / "history")]
    if request.param == "server":
        mine: real_qdrant.Collections = request.getfixturevalue("collections")
        where = ["--url", mine.place.url, "--collection-prefix", mine.place.prefix]

    def ended(*arguments: str) -> Ended:
        code = main(["history", *arguments, *where])
        out, err = capsys.readouterr()
        return code, out, err

    if request.param == "server":
        assert ended("status")[0] == 69
        assert ended("init", "--dry-run")[1].endswith("would be made, 1 shards, 1 replicas\n")
        assert ended("init")[:2] == (0, f"{mine.name(_space())}: made\n")
        assert ended("init")[:2] == (0, f"{mine.name(_space())}: is there\n")
        assert ended("migrate")[0] == 0
    return ended


def _space() -> object:
    from sagesched.embed import open_embedder
    from sagesched.settings import Embedding
    from sagesched_store.record import Space

    embedder = open_embedder(Embedding())
    return Space(embedder.name, embedder.dimensions)


@pytest.fixture
def traffic(tmp_path: Path) -> str:
    file = tmp_path / "traffic.jsonl"
    file.write_text("\n".join(map(json.dumps, TRAFFIC)) + "\n\n{broken zanzibar\n")
    return str(file)


def tenants(command: Callable[..., Ended]) -> dict[str, int]:
    found: dict[str, int] = json.loads(command("status", "--json")[1])["tenants"]
    return found


def test_in_and_out_and_no_prompt_in_what_comes_out(
    command: Callable[..., Ended], traffic: str, tmp_path: Path
) -> None:
    assert command("import", traffic, "--dry-run")[1] == "3 records would be imported, 1 lines skipped\n"
    assert tenants(command) == {}
    for _ in range(2):
        code, out, err = command("import", traffic)
        assert (code, out) == (0, "3 records imported, 1 lines skipped\n")
        assert "line 5: DecodeError" in err
        assert "zanzibar" not in err
        assert tenants(command) == {"a": 1, "b": 1, "": 1}, "twice is once"
    out_file = tmp_path / "out.jsonl"
    assert command("export", str(out_file), "--dry-run")[1] == "3 records would be exported\n"
    assert command("export", str(out_file))[1] == "3 records exported\n"
    text = out_file.read_text()
    assert "zanzibar" not in text + command("status")[1]
    assert out_file.stat().st_mode & 0o777 == 0o600
    lengths = {json.loads(line)["output_tokens"]: json.loads(line)["censored"] for line in text.splitlines()}
    assert lengths == {30: False, 40: False, 50: True}
    assert command("delete-tenant", "a")[:2] == (0, "1 records deleted\n")
    assert command("import", str(out_file))[1] == "3 records imported, 0 lines skipped\n"
    assert tenants(command) == {"a": 1, "b": 1, "": 1}
    assert command("export", str(out_file), "--tenant", "b")[1] == "1 records exported\n"


def test_deletions_say_first_what_they_would_do(command: Callable[..., Ended], traffic: str) -> None:
    command("import", traffic)
    assert command("prune", "--older-than", "30d", "--dry-run")[1] == "1 records would be deleted\n"
    assert command("prune", "--older-than", "30d")[1] == "1 records deleted\n"
    assert tenants(command) == {"b": 1, "": 1}
    assert command("delete-tenant", "b", "--dry-run")[1] == "1 records would be deleted\n"
    assert command("delete-tenant", "b")[1] == "1 records deleted\n"
    assert command("delete-tenant", "b")[0] == 1
    assert tenants(command) == {"": 1}


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["status"], 64, "name a store"),
        (["status", "--path", "/x", "--url", "http://q"], 64, "--path"),
        (["status", "--url", "ftp://q"], 64, "history.server.url"),
        (["init", "--path", "/tmp/x"], 64, "needs no init"),
        (["import", "/none.jsonl", "--path", "/proc/none"], 69, "/proc/none"),
    ],
)
def test_what_is_wrong_is_said(arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", *arguments]) == code
    assert said in capsys.readouterr().err


def test_an_age_has_a_unit(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["history", "prune", "--path", "/x", "--older-than", "30"])
    assert ended.value.code == 64
    assert "as 30d" in capsys.readouterr().err


def test_records_of_another_embedder_do_not_come_in(command: Callable[..., Ended], tmp_path: Path) -> None:
    file = tmp_path / "other.jsonl"
    line = {"embedding": "AACAPw==", "embedder": "other", "prompt_tokens": 1, "output_tokens": 1, "finished_s": 1.0}
    file.write_text(json.dumps(line) + "\n" + json.dumps(line | {"embedding": "?"}))
    code, out, err = command("import", str(file))
    assert (code, out) == (1, "0 records imported, 2 lines skipped\n")
    assert "line 1: is of embedder" in err
