"""Words, tokens, lengths, sessions, faults and options: the parts without a server."""

import asyncio
import hashlib
import json
import statistics
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sagesched_sim.__main__ import options_from
from sagesched_sim.faults import Faults
from sagesched_sim.filler import RING_TOKENS, FillerText
from sagesched_sim.lengths import TopicLengths, TrueLengths, read_lengths
from sagesched_sim.observations import Tally, one_two_five
from sagesched_sim.options import Options
from sagesched_sim.prompt import content_text, count_tokens, token_ids
from sagesched_sim.session import Sent, Session
from sagesched_sim.surfaces.ask import Piece

FILLER = FillerText(7)


@given(st.integers(0, 2**32), st.lists(st.integers(1, 900), min_size=1, max_size=12))
def test_pieces_of_an_answer_join_to_the_whole(entry: int, sizes: list[int]) -> None:
    total = sum(sizes)
    ends = [sum(sizes[: at + 1]) for at in range(len(sizes))]
    pieces = [FILLER.tokens(entry, end - size, end) for size, end in zip(sizes, ends, strict=True)]
    whole = b"".join(pieces)
    assert whole == FILLER.tokens(entry, 0, total)
    assert len(whole.split(b" ")) == total
    assert whole.replace(b" ", b"").isalpha()


def test_words_depend_on_the_seed_alone() -> None:
    assert FillerText(7).tokens(3, 0, 50) == FILLER.tokens(3, 0, 50) != FillerText(8).tokens(3, 0, 50)
    assert len(FILLER.tokens(0, 0, 3 * RING_TOKENS).split()) == 3 * RING_TOKENS


@given(st.text())
def test_as_many_ids_as_tokens(text: str) -> None:
    assert len(token_ids(text)) == count_tokens(text) >= 1


def test_text_of_content_parts() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "image_url", "image_url": {}}, {"type": "text", "text": "two"}]
    assert (content_text("plain"), content_text(parts), content_text(None)) == ("plain", "one\ntwo", "")


def test_lengths_by_topic_are_repeatable_spread_and_alike_for_alike_prompts() -> None:
    topics = TopicLengths(3)
    prompts = [f"{word} {number}" for number in range(40) for word in ("gardening", "astronomy", "cooking", "painting")]
    drawn = [topics.draw(prompt) for prompt in prompts]
    assert drawn == [TopicLengths(3).draw(prompt) for prompt in prompts]
    assert drawn != [TopicLengths(4).draw(prompt) for prompt in prompts]
    assert len(set(drawn)) > 100
    same_topic = [statistics.pvariance([*map(_log2, drawn[at::4])]) for at in range(4)]
    assert statistics.mean(same_topic) < statistics.pvariance([*map(_log2, drawn)])


def _log2(value: int) -> float:
    return float(value.bit_length())


def test_a_script_goes_before_the_file_and_the_file_before_the_topic(tmp_path: Path) -> None:
    file = tmp_path / "lengths.jsonl"
    key = hashlib.sha256("größe".encode()).hexdigest()
    file.write_text(json.dumps({"key": key, "output_tokens": 12}) + "\n\n")
    lengths = TrueLengths(read_lengths(file), TopicLengths(0))
    assert (lengths.of("größe", 0, 5), lengths.of("größe", 0, None)) == (5, 12)
    assert lengths.of("other", 1, None) == TopicLengths(0).draw("other", 1)


@pytest.mark.parametrize("line", ['{"key": "k"}', '{"key": "k", "output_tokens": 0}', "nonsense"])
def test_a_bad_lengths_file_names_the_line(tmp_path: Path, line: str) -> None:
    file = tmp_path / "lengths.jsonl"
    file.write_text('{"key": "a", "output_tokens": 1}\n' + line + "\n")
    with pytest.raises(ValueError, match=r"lengths\.jsonl:2: "):
        read_lengths(file)


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        (1, [(0, 1, None), (1, 2, None), (2, 3, None), (3, 4, "stop")]),
        (2, [(0, 1, None), (1, 3, None), (3, 4, "stop")]),
        (3, [(0, 1, None), (1, 4, "stop")]),
        (9, [(0, 1, None), (1, 4, "stop")]),
        (None, [(0, 4, "stop")]),
    ],
)
async def test_stream_interval(interval: int | None, expected: list[tuple[int, int, str | None]]) -> None:
    session = Session(interval_tokens=interval, arrival_s=0.0, max_tokens=9, choices=1)
    sent = Sent(session, 0, prompt_tokens=1)
    session.open_ids.add("s")
    for _ in range(4):
        session.token(sent)
    session.open_ids.clear()
    session.finish(sent, "stop")
    assert await session.pieces() == [Piece(0, *one) for one in expected]
    assert await session.pieces() == []


async def test_two_sequences_that_end_in_one_step_send_no_empty_piece() -> None:
    session = Session(interval_tokens=1, arrival_s=0.0, max_tokens=9, choices=2)
    both = [Sent(session, index, prompt_tokens=1) for index in range(2)]
    session.open_ids.add("s")
    waiting = asyncio.ensure_future(session.pieces())
    await asyncio.sleep(0)
    for sent in both:
        session.token(sent)
    for sent in both:
        session.finish(sent, "length")
    assert await waiting == [Piece(0, 0, 1, "length"), Piece(1, 0, 1, "length")]


def test_faults_are_drawn_by_seed_and_at_their_rate() -> None:
    drawn = [Faults(0.3, ("stall", "error500"), 5) for _ in range(2)]
    first, second = ([faults.draw() for _ in range(2000)] for faults in drawn)
    assert first == second
    hit = [fault.kind for fault in first if fault is not None]
    assert 500 < len(hit) < 700
    assert set(hit) == {"stall", "error500"}
    assert all(Faults(0.0, ("stall",), 5).draw() is None for _ in range(10))


def test_tally_buckets_are_cumulative_and_bounds_belong_to_the_lower() -> None:
    tally = Tally((1, 2, 5))
    tally.add(1)
    tally.add(3, weight=2)
    tally.add(9)
    assert tally.cumulative() == [("1.0", 1), ("2.0", 1), ("5.0", 3), ("+Inf", 4)]
    assert tally.total == 16
    assert one_two_five(300) == (1, 2, 5, 10, 20, 50, 100, 200)


def test_options_from_a_command_line(tmp_path: Path) -> None:
    command = f"--port 0 --profile qwen3-32b-h100-tp1 --kv-tokens 1000 --lengths {tmp_path}/x --fault-kinds stall"
    options = options_from([*command.split(), "--api-key-env", "KEY"], {"KEY": "secret"})
    assert (options.api_key, options.lengths, options.fault_kinds) == ("secret", tmp_path / "x", ("stall",))
    assert options.limits().num_blocks == 62
    assert options.limits().max_model_len == 992, "cut to the cache"
    assert Options(kv_tokens=None).limits().num_blocks == 2588


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--speedup", "0"], "speedup: 0"),
        (["--fault-rate", "2"], "fault_rate: 2"),
        (["--fault-kinds", "fire"], "fault_kinds: fire"),
        (["--kv-tokens", "8"], "num_blocks: 0"),
        (["--block-size", "0"], "block_size: 0"),
        (["--api-key-env", "KEY"], "api_key_env: the environment variable KEY"),
    ],
)
def test_wrong_options_name_the_field(arguments: list[str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        options_from(arguments, {})
