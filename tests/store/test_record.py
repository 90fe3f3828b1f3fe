"""What a record holds and what it never holds."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from store_records import SPACE, record

from sagesched.request import Features, Outcome, Request
from sagesched_store.points import payload_of, record_from, vector_of
from sagesched_store.record import Record, Space, record_of


def test_its_fields_are_these_and_none_holds_text():
    """Named one by one: a new field is to be looked at by whoever adds it."""
    assert set(Record.__struct_fields__) == {
        *("embedding", "embedder", "model", "tenant", "prompt_tokens", "output_tokens"),
        *("censored", "features", "finished_s", "request"),
    }
    assert set(payload_of(record(1))) == {
        *("schema", "check", "model", "tenant", "prompt_tokens", "output_tokens", "censored", "finished_s", "request"),
        *("asked_number", "max_tokens", "choices", "effort", "tools"),
    }


@given(st.text(max_size=400), st.text(max_size=400), st.integers(0, 10**30), st.integers(0, 10**30))
def test_any_request_makes_a_record_that_can_be_written(name, request_id, tokens, limit):
    request = Request(
        id=request_id + "\ud800",
        model=name + "\udfff",
        tenant=name,
        prompt_tokens=tokens,
        features=Features(max_tokens=limit, effort=name),
    )
    made = record_of(request, b"\0" * 16, "letters-1", Outcome(output_tokens=tokens, censored=True), 1.5)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=Record) == made
    assert record_from(payload_of(made), vector_of(made), "letters-1") == made
    assert (made.censored, made.finished_s, made.output_tokens) == (True, 1.5, min(tokens, 2**31 - 1))
    assert len(made.model) <= 256
    assert len(made.features.effort) <= 32
    assert len(made.request) == 32


def test_the_engines_count_of_prompt_tokens_outweighs_the_estimate():
    outcome = Outcome(output_tokens=5, prompt_tokens=77)
    assert record_of(Request(id="r", prompt_tokens=60), b"", "e", outcome, 0.0).prompt_tokens == 77
    assert record_of(Request(id="r", prompt_tokens=60), b"", "e", Outcome(output_tokens=5), 0.0).prompt_tokens == 60


def test_a_point_that_is_not_what_was_written_is_no_record():
    one = record(1)
    payload, vector = payload_of(one), vector_of(one)
    assert record_from(payload, vector, one.embedder) == one
    for name, value in payload.items():
        if name != "schema":
            changed = "x" if isinstance(value, str) else (not value if isinstance(value, bool) else 12345)
            assert record_from(payload | {name: changed}, vector, one.embedder) is None, name
            assert record_from({k: v for k, v in payload.items() if k != name}, vector, one.embedder) is None, name
    assert record_from(payload, [*vector[:-1], vector[-1] + 0.5], one.embedder) is None
    assert record_from(None, vector, one.embedder) is None
    assert record_from(payload, None, one.embedder) is None


def test_the_point_s_id_is_the_record_s_identity():
    one = record(1)
    assert one.point_id == record(1).point_id
    assert one.point_id.version == 5
    others = [record(2), record(1, tenant="t"), record(1, model="another"), record(1, request="r")]
    assert len({one.point_id, *(other.point_id for other in others)}) == 5


@pytest.mark.parametrize("name", ["static-128-0a1b2c3d", "sentence-transformers:org/model", "../..", "", "ä" * 300])
def test_a_space_s_folder_is_one_plain_name(name):
    slug = Space(name, 128).slug
    assert "/" not in slug
    assert not slug.startswith(".")
    assert len(slug) < 100
    assert slug != Space(name + "x", 128).slug != Space(name + "x", 129).slug


def test_the_spaces_dimensions_are_the_vectors():
    assert record(1).space == SPACE
    assert SPACE.dimensions == 4
