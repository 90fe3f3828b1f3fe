"""The two parts of a workload: earlier and later, never mixed; and a user's own file."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagesched_sim.workload import jsonl, sources
from sagesched_sim.workload.exchange import Exchange, WorkloadError
from sagesched_sim.workload.traffic import Traffic, shuffled, synthetic


def test_synthetic_parts_are_disjoint_and_of_the_size_asked_for() -> None:
    traffic = synthetic(1, history=300, requests=200)
    history, measured = ({e.prompt for e in part} for part in (traffic.history, traffic.measured))
    assert (len(history), len(measured)) == (300, 200)
    assert not history & measured
    assert traffic == synthetic(1, history=300, requests=200)
    assert traffic != synthetic(2, history=300, requests=200)


@given(st.lists(st.integers(0, 8), max_size=40), st.integers(0, 40), st.integers(1, 12))
def test_split_takes_the_latest_and_learns_from_what_came_before(
    prompts: list[int], history: int, requests: int
) -> None:
    exchanges = [Exchange(str(prompt), index + 1) for index, prompt in enumerate(prompts)]
    try:
        traffic = Traffic.split(exchanges, history=history, requests=requests)
    except WorkloadError:
        tail = exchanges[1:]
        assert len({exchange.prompt for exchange in tail}) < requests
        return
    assert len(traffic.measured) == len({e.prompt for e in traffic.measured}) == requests
    assert len(traffic.history) <= history
    first = min(e.output_tokens for e in traffic.measured)
    assert all(e.output_tokens < first for e in traffic.history)


@given(st.integers(0, 100))
def test_shuffling_keeps_every_exchange(seed: int) -> None:
    exchanges = tuple(Exchange(str(n), n) for n in range(1, 20))
    assert sorted(shuffled(exchanges, seed), key=lambda e: e.output_tokens) == list(exchanges)


def test_jsonl_is_read_in_its_own_order(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text('{"prompt": "a", "output_tokens": 3}\n\n{"prompt": "b", "output_tokens": 5, "other": 1}\n')
    traffic = sources.load(str(path), 9, history=10, requests=1)
    assert traffic.history == (Exchange("a", 3),)
    assert traffic.measured == (Exchange("b", 5),)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"not json", "malformed"),
        (b'{"prompt": "a"}', "output_tokens"),
        (b'{"prompt": 5, "output_tokens": 3}', "prompt"),
        (b'{"prompt": "a", "output_tokens": 0}', ">= 1"),
        (b'{"prompt": "\xff", "output_tokens": 1}', "2:"),
    ],
)
def test_a_wrong_line_is_named_with_its_number(line: bytes, problem: str) -> None:
    with pytest.raises(WorkloadError, match=r"log\.jsonl:2:") as raised:
        list(jsonl.parse([b'{"prompt": "a", "output_tokens": 3}', line], "log.jsonl"))
    assert problem in str(raised.value)


def test_empty_and_missing_files_are_refused(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_bytes(b"\n")
    with pytest.raises(WorkloadError, match="no exchange"):
        jsonl.read(empty)
    with pytest.raises(WorkloadError, match=r"missing\.jsonl"):
        jsonl.read(tmp_path / "missing.jsonl")


def test_too_little_data_says_so(tmp_path: Path) -> None:
    path = tmp_path / "short.jsonl"
    path.write_text('{"prompt": "a", "output_tokens": 3}\n')
    with pytest.raises(WorkloadError, match="--requests"):
        sources.load(str(path), 1, history=1, requests=1)


def test_an_unknown_source_is_refused() -> None:
    with pytest.raises(WorkloadError, match="--data tables"):
        sources.load("tables", 1, history=1, requests=1)
