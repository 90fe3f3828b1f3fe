"""Asking for usage changes one member of a body and no other byte."""

import json

from hypothesis import given
from hypothesis import strategies as st

from sagesched_sidecar.body_edit import MAX_SCANNED_BYTES, with_member, with_usage
from sagesched_sidecar.surfaces import SURFACES

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.text(max_size=8)
    | st.sampled_from(['"}', "stream_options", "\\"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=3) | st.just("stream_options"), inner, max_size=3)
    ),
    max_leaves=8,
)
MEMBERS = st.dictionaries(st.text(max_size=4), VALUES, min_size=1, max_size=5)
OPTIONS = st.none() | st.dictionaries(st.sampled_from(["a", "include_usage", "continuous_usage_stats"]), st.booleans())


@given(MEMBERS, st.sampled_from([None, 1]), st.booleans())
def test_without_options_a_member_is_put_first(members, indent, escapes):
    raw = json.dumps(members, indent=indent, ensure_ascii=escapes).encode("utf-8", "surrogatepass")
    edited = with_usage(raw, members)
    assert edited is not None
    assert edited.replace(b'"stream_options":{"include_usage":true},', b"", 1) == raw
    assert edited.startswith(b'{"stream_options":{"include_usage":true},')


@given(
    MEMBERS,
    OPTIONS,
    MEMBERS,
    st.sampled_from([None, 1]),
    st.sampled_from(['"stream_options"', '"stream\\u005foptions"']),
)
def test_with_options_their_value_alone_is_written_anew(before, options, after, indent, key):
    first, last = (json.dumps(part, indent=indent)[1:-1] for part in (before, after))
    head, tail = f"{{{first}, {key} : ", f" , {last}}}"
    raw = (head + json.dumps(options, indent=indent) + tail).encode()
    whole = json.loads(raw)
    if not isinstance(whole["stream_options"], dict | None):
        return
    edited = with_usage(raw, whole)
    if "stream_options" in after:
        assert edited is not None
        assert json.loads(edited)["stream_options"]["include_usage"] is True
        return
    expected = (options or {}) | {"include_usage": True}
    if "continuous_usage_stats" in expected:
        expected["continuous_usage_stats"] = False
    assert edited is not None
    assert edited.startswith(head.encode())
    assert edited.endswith(tail.encode())
    assert json.loads(edited[len(head.encode()) : -len(tail.encode())]) == expected


@given(
    st.dictionaries(st.text(max_size=4) | st.just("priority"), VALUES, max_size=5),
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([None, 1]),
)
def test_a_member_is_set_and_nothing_else_changes(members, value, indent):
    raw = json.dumps(members, indent=indent).encode()
    edited = with_member(raw, members, "priority", value)
    assert edited is not None
    assert json.loads(edited) == members | {"priority": value}
    if "priority" not in members:
        assert edited.endswith(raw[1:])


def test_of_a_repeated_member_the_one_that_counts_is_set():
    raw = b'{"priority": 1, "a": {"priority": 2}, "priority": 3 }'
    assert with_member(raw, json.loads(raw), "priority", -7) == raw.replace(b"3", b"-7")


def test_numbers_and_unknown_fields_keep_their_form():
    raw = b'{ "temperature": 1.0e0, "x_new" :[1.10], "stream" : true}'
    asked = SURFACES["/v1/completions"].asking_for_usage(raw, json.loads(raw))
    assert asked == b'{"stream_options":{"include_usage":true}, "temperature": 1.0e0, "x_new" :[1.10], "stream" : true}'


def test_a_large_body_is_not_searched_for_its_options():
    raw = json.dumps({"stream": True, "stream_options": {}, "prompt": [1] * MAX_SCANNED_BYTES}).encode()
    assert SURFACES["/v1/completions"].asking_for_usage(raw, json.loads(raw)) is None
    small = raw.replace(b', "prompt": ' + json.dumps([1] * MAX_SCANNED_BYTES).encode(), b"")
    assert SURFACES["/v1/completions"].asking_for_usage(small, json.loads(small)) is not None


def test_nothing_is_asked_for_where_the_client_asks_or_nothing_streams():
    for body in (
        {"stream": True, "stream_options": {"include_usage": True}},
        {"stream": False},
        {"stream": 1},
        {},
        {"stream": True, "stream_options": "no object"},
    ):
        raw = json.dumps(body).encode()
        assert SURFACES["/v1/chat/completions"].asking_for_usage(raw, body) is None
    streaming = {"stream": True}
    for path in ("/v1/responses", "/v1/messages"):
        assert SURFACES[path].asking_for_usage(b'{"stream":true}', streaming) is None
