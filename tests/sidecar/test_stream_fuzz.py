"""Streams and bodies, broken and cut at random; the soak runs a million of them."""

import pytest
import stream_fuzz
from hypothesis import given, settings
from hypothesis import strategies as st

from sagesched_sidecar import events, streams


@settings(max_examples=800, deadline=None)
@given(st.integers(0, 2**63))
def test_a_split_stream_parses_as_the_whole_one_does_and_nothing_breaks(seed: int) -> None:
    stream_fuzz.check(seed)


@pytest.mark.parametrize(
    ("where", "name", "broken"),
    [(events, "_LOOK_BACK_BYTES", 0), (streams, "_END_OF_LINE", b""), (streams, "HELD_BYTES", 10)],
)
def test_a_broken_cutter_is_found(monkeypatch: pytest.MonkeyPatch, where: object, name: str, broken: object) -> None:
    monkeypatch.setattr(where, name, broken)
    with pytest.raises(AssertionError):
        every_seed_to(5000)


def every_seed_to(end: int) -> None:
    for seed in range(end):
        stream_fuzz.check(seed)
