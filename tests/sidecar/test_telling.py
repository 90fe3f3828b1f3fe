"""What the engine is told, and what of it a client may say itself."""

import json

from hypothesis import given
from hypothesis import strategies as st

from sagesched import hint
from sagesched.hint import Hint
from sagesched_sidecar.body_edit import MAX_SCANNED_BYTES
from sagesched_sidecar.telling import claims, levelled, placed

TOLD = Hint(lengths=(5.0, 9.0), weights=(0.5, 0.5))
SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=4)
EXTRAS = st.dictionaries(st.sampled_from(["top_k", "own", *hint.encode(TOLD)]), st.integers() | st.text(max_size=3))
BODIES = st.fixed_dictionaries(
    {}, optional={"prompt": st.text(max_size=9), "priority": SCALARS, "vllm_xargs": EXTRAS | SCALARS, "n": SCALARS}
)
PRIORITIES = st.integers(-(2**63), 2**63 - 1)


def told_of(raw, document, priority, told):
    return placed(raw, document, in_body=True, priority=priority, hint=told)


@given(BODIES, PRIORITIES, st.sampled_from([None, TOLD]), st.sampled_from([None, 1]))
def test_the_place_is_the_ranking_s_and_all_else_is_the_client_s(body, priority, told, indent):
    raw = json.dumps(body, indent=indent).encode()
    out = told_of(raw, json.loads(raw), priority, told)
    seen = json.loads(out.body)
    assert out.priority == priority or seen["priority"] == priority
    extras = body.get("vllm_xargs")
    if isinstance(extras, dict | None):
        foreign = {name: value for name, value in (extras or {}).items() if not name.startswith(hint.PREFIX)}
        ours = hint.encode(told) if told else {}
        assert (seen.get("vllm_xargs") or {}) == foreign | ours
        assert hint.decode(seen.get("vllm_xargs")) == told
    else:
        assert seen["vllm_xargs"] == extras, "what is wrong is the engine's to refuse"
    for name in ("prompt", "n"):
        assert (name in seen, seen.get(name)) == (name in body, body.get(name))


@given(BODIES, PRIORITIES)
def test_in_the_gate_a_claim_counts_for_no_more_than_its_class(body, priority):
    raw = json.dumps(body).encode()
    found = {claim.how for claim in claims(body, {})}
    seen = json.loads(levelled(raw, body, priority))
    assert hint.decode(seen.get("vllm_xargs")) is None
    if "body" in found:
        assert seen["priority"] == priority
    if not found:
        assert levelled(raw, body, priority) == raw


def test_claims_are_found_wherever_they_are():
    body = {"priority": "-5", "vllm_xargs": {"sagesched_v": 1, "own": 2}}
    assert [claim.how for claim in claims(body, {"X-Vllm-Priority": "-9"})] == ["header", "body", "hint"]
    assert claims({"priority": None, "vllm_xargs": {"own": 1}}, {}) == []
    assert [claim.how for claim in claims(None, {"X-Vllm-Priority": "x"})] == ["header"]


def test_what_is_no_number_is_left_for_the_engine_to_refuse():
    raw = b'{"priority": [1]}'
    out = told_of(raw, json.loads(raw), 7, None)
    assert (out.body, out.priority) == (raw, 7)


def test_where_the_body_cannot_say_it_the_header_does():
    raw = b'{"max_tokens": 1}'
    assert placed(raw, json.loads(raw), in_body=False, priority=-3, hint=TOLD) == (raw, -3)
    assert placed(b"no json", None, in_body=True, priority=-3, hint=TOLD) == (b"no json", -3)


def test_in_a_large_body_a_claim_is_outdone_without_a_search():
    body = {"priority": -9, "vllm_xargs": {"sagesched_v": 1}, "prompt": "x" * MAX_SCANNED_BYTES}
    raw = json.dumps(body).encode()
    out = told_of(raw, body, 4, TOLD)
    seen = json.loads(out.body)
    assert (seen["priority"], hint.decode(seen["vllm_xargs"])) == (4, TOLD)
    assert out.body.startswith(raw[:-1])
    assert json.loads(levelled(raw, body, 4))["priority"] == 4
