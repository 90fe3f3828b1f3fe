"""What a gateway says in its headers, and who is believed."""

import json

import pytest

from sagesched.settings import SettingsError, decode

BODY = b'{"model": "m", "prompt": "hello"}'
TRUSTED = {"trustedProxies": ["127.0.0.0/8", "::1/128"], "tenantHeader": "X-Tenant"}
CLASSES = [
    {"name": "chat", "priority": -1, "objectives": ["premium", "gold"]},
    {"name": "batch", "priority": 5, "objectives": ["bulk"]},
]


async def asked(start, client, fakes, fields, gateway=None):
    """The request as the ranking saw it, and the metrics page."""
    requests = []
    ok = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    _, sidecar = await start(
        lambda seen: fakes.Script([ok]), {"scheduling": {"classes": CLASSES}, "gateway": gateway or {}}
    )
    admit = sidecar.gate.ranking.admit
    sidecar.gate.ranking.admit = lambda request, *rest: requests.append(request) or admit(request, *rest)
    await client.ask(sidecar, "POST", "/v1/completions", BODY, *fields)
    return requests[0], (await client.ask(sidecar, "GET", "/metrics")).body.decode()


@pytest.mark.parametrize(
    ("fields", "class_name"),
    [
        ((), "default"),
        (("x-llm-d-inference-objective: premium",), "chat"),
        (("x-gateway-inference-objective: bulk",), "batch"),
        (("x-llm-d-inference-objective: gold", "x-gateway-inference-objective: bulk"), "chat"),
        (("x-llm-d-inference-objective: premium", "x-sagesched-class: batch"), "batch"),
        (("x-llm-d-inference-objective: " + "x" * 5000,), "default"),
    ],
)
async def test_an_objective_names_a_class(start, client, fakes, fields, class_name):
    request, page = await asked(start, client, fakes, fields)
    assert request.class_name == class_name
    if class_name == "default" and fields:
        assert 'sagesched_gateway_header_total{header="x-llm-d-inference-objective",outcome="unknown"} 1.0' in page


@pytest.mark.parametrize(
    ("header", "field"),
    [("x-llm-d-inference-fairness-id", "tenant"), ("X-Tenant", "tenant"), ("x-llm-d-model-name-rewrite", "model")],
)
async def test_a_tenant_and_a_model_count_only_from_a_trusted_proxy(start, client, fakes, header, field):
    plain = {"tenant": "", "model": "m"}[field]
    for gateway, expected, outcome in (
        ({"tenantHeader": "X-Tenant"}, plain, "untrusted"),
        ({"tenantHeader": "X-Tenant", "trustedProxies": ["10.0.0.0/8"]}, plain, "untrusted"),
        (TRUSTED, "someone", "used"),
    ):
        request, page = await asked(start, client, fakes, (f"{header}: someone",), gateway)
        assert getattr(request, field) == expected
        assert f'header="{header.lower()}",outcome="{outcome}"' in page


async def test_hostile_names_are_short_and_still_apart(start, client, fakes):
    seen = []
    for name in ("a" * 6000, "a" * 6001, "tenant with spaces"):
        request, page = await asked(start, client, fakes, (f"x-llm-d-inference-fairness-id: {name}",), TRUSTED)
        seen.append(request.tenant)
        assert 'outcome="shortened"} 1.0' in page
    assert len(set(seen)) == 3
    assert max(map(len, seen)) < 64


async def test_the_engine_s_names_for_one_model_are_one_model(start, client, fakes):
    _, sidecar = await start(
        lambda seen: fakes.Script([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"]),
        {"engine": {"arguments": ["--model", "org/x", "--served-model-name", "first", "second"]}},
    )
    requests = []
    admit = sidecar.gate.ranking.admit
    sidecar.gate.ranking.admit = lambda request, *rest: requests.append(request) or admit(request, *rest)
    for model in ("first", "second", "", "adapter"):
        await client.ask(sidecar, "POST", "/v1/completions", json.dumps({"model": model, "prompt": "x"}).encode())
    assert [request.model for request in requests] == ["first", "first", "first", "adapter"]


@pytest.mark.parametrize(
    ("document", "named"),
    [
        ({"gateway": {"trustedProxies": ["10.0.0.1/8"]}}, r"^gateway\.trustedProxies\[0\]: "),
        ({"gateway": {"trustedProxies": ["::/0", "no network"]}}, r"^gateway\.trustedProxies\[1\]: "),
        ({"gateway": {"tenantHeader": "two words"}}, r"^gateway\.tenantHeader: "),
        (
            {"scheduling": {"classes": [{"name": "a", "objectives": ["o"]}, {"name": "b", "objectives": ["o"]}]}},
            r"^scheduling\.classes: objective 'o' is listed twice",
        ),
    ],
)
def test_wrong_settings_are_refused_by_their_path(document, named):
    with pytest.raises(SettingsError, match=named):
        decode(document)
