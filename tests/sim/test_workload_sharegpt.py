"""ShareGPT's JSON: decoded record by record, whole or cut anywhere."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagesched_sim.workload import sharegpt, sources
from sagesched_sim.workload.exchange import WorkloadError


def _conversation(*turns: tuple[str, str]) -> dict[str, Any]:
    return {"id": "x", "conversations": [{"from": who, "value": text} for who, text in turns]}


QUESTION, ANSWER = "What is the best bread?", "The best bread is the one you bake."
RECORDS = [_conversation(("human", f"{QUESTION} {n}"), ("gpt", f"{ANSWER} {n} é ]}},")) for n in range(5)]
TEXT = json.dumps(RECORDS, indent=2, ensure_ascii=False)


def test_whole_array_gives_every_record() -> None:
    assert list(sharegpt.records(io.StringIO(TEXT))) == RECORDS


@given(st.integers(0, len(TEXT)))
def test_cut_anywhere_gives_the_whole_records_before_the_cut(cut: int) -> None:
    text = TEXT[:cut]
    if not text:
        with pytest.raises(WorkloadError):
            list(sharegpt.records(io.StringIO(text)))
        return
    decoded = list(sharegpt.records(io.StringIO(text)))
    assert decoded == RECORDS[: len(decoded)]
    assert len(decoded) == text.count("\n  }")


def test_records_longer_than_one_read_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharegpt, "_CHUNK_CHARACTERS", 7)
    assert list(sharegpt.records(io.StringIO(TEXT))) == RECORDS


def test_what_is_no_array_is_refused() -> None:
    with pytest.raises(WorkloadError, match="array"):
        list(sharegpt.records(io.StringIO('{"a": 1}')))


def test_a_malformed_record_is_refused_rather_than_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharegpt, "_CHUNK_CHARACTERS", 8)
    monkeypatch.setattr(sharegpt, "_MAX_RECORD_CHARACTERS", 64)
    with pytest.raises(WorkloadError, match="does not decode"):
        list(sharegpt.records(io.StringIO("[{broken" + " " * 1000)))


def test_only_first_human_and_gpt_turns_count() -> None:
    conversations = [
        _conversation(("human", QUESTION), ("gpt", ANSWER), ("human", "and?"), ("gpt", "more of it")),
        _conversation(("gpt", ANSWER), ("human", QUESTION)),
        _conversation(("human", QUESTION)),
        _conversation(),
        {"id": "no conversations"},
    ]
    assert list(sharegpt.first_turns(io.StringIO(json.dumps(conversations)))) == [(QUESTION, ANSWER)]


def test_exchanges_keep_each_prompt_once_and_those_of_the_stated_sizes() -> None:
    conversations = [
        _conversation(("human", QUESTION), ("gpt", ANSWER)),
        _conversation(("human", QUESTION), ("gpt", ANSWER + " Again.")),
        _conversation(("human", "Hi"), ("gpt", ANSWER)),
        _conversation(("human", "word " * 4097), ("gpt", ANSWER)),
        _conversation(("human", QUESTION + " Long."), ("gpt", "word " * 6140)),
    ]
    found = list(sharegpt.exchanges(io.StringIO(json.dumps(conversations))))
    assert [(exchange.prompt, exchange.output_tokens) for exchange in found] == [(QUESTION, 9)]


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("bread", 1), ("independence", 2), ("2026!", 3), ("你好 世界", 4), ("a b  c\n", 3)]
)
def test_token_rule(text: str, tokens: int) -> None:
    assert sharegpt.count_tokens(text) == tokens


def test_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharegpt, "PACKAGE", "no_such_package_for_this_test")
    with pytest.raises(WorkloadError, match=r"sagesched\[sharegpt\]"):
        sharegpt.find()


def test_a_path_to_the_json_is_read_and_shuffled_by_seed(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    path.write_text(TEXT[:-30], encoding="utf-8")
    traffic = sources.load(str(path), 1, history=3, requests=2)
    assert len(traffic.history) == 2
    assert len(traffic.measured) == 2
    assert {e.prompt for e in traffic.history + traffic.measured} == {f"{QUESTION} {n}" for n in range(4)}


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match=r"nothing-here\.json"):
        sources.load(str(tmp_path / "nothing-here.json"), 1, history=3, requests=2)
