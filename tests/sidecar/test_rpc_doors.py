"""The whole sidecar with both doors open: one queue, one drain, health, TLS, sockets, pings, reflection."""

import asyncio
import contextlib
import json
import re
import stat
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.json_format import MessageToDict, Parse
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from sagesched_client import Client, subject
from sagesched_pb.v1 import introspection_pb2, scheduling_pb2
from sagesched_sidecar.rpc import door as door_module
from sagesched_sidecar.server import drain

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
TLS = Path(__file__).parent.parent / "fakes" / "tls"
LIMIT_S = 20
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
SERVICES = ["sagesched.v1.SchedulingService", "sagesched.v1.IntrospectionService"]


async def until(condition):
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.001)


async def never():
    await asyncio.Event().wait()


def completion(max_tokens):
    return json.dumps({"model": "m", "prompt": "x", "max_tokens": max_tokens}).encode()


async def health_of(address, service):
    async with grpc.aio.insecure_channel(address) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        return (await stub.Check(health_pb2.HealthCheckRequest(service=service))).status


async def test_one_order_for_what_came_by_either_door(start, client, fakes):
    """Lengths are told by max_tokens, all of it being predicted; the shortest goes first, whatever its door."""
    go = asyncio.Event()
    settings = {"engine": {"slots": 1}, "scheduling": {"policy": "sjf"}, "grpc": {"listen": ["127.0.0.1:0"]}}
    engine, sidecar = await start(lambda seen: fakes.Script([OK], gate=go), settings)
    first = asyncio.ensure_future(client.ask(sidecar, "POST", "/v1/completions", completion(2)))
    await engine.request(0)
    order = []

    async def by_grpc(rpc, tokens):
        async with rpc.admit(subject("x", model="m", max_tokens=tokens)) as stay:
            await stay.turn()
            order.append(tokens)
            await stay.finish(tokens)

    async def by_http(tokens):
        await client.ask(sidecar, "POST", "/v1/completions", completion(tokens))

    async with Client(sidecar.rpc.addresses[0]) as rpc:
        tasks = [first]
        for waiting, tokens in enumerate((9, 4, 7, 2, 8, 3), start=1):
            tasks.append(asyncio.ensure_future(by_http(tokens) if tokens % 2 else by_grpc(rpc, tokens)))
            await until(lambda wanted=waiting: sidecar.gate.snapshot().waiting == wanted)
        queue = await rpc.introspection.ListQueue(introspection_pb2.ListQueueRequest())
        assert [round(row.predicted_tokens) for row in queue.rows] == [2, 3, 4, 7, 8, 9]
        starts = [row.request_id for row in queue.rows]
        go.set()
        await asyncio.gather(*tasks)
    assert order == [2, 4, 8]
    records = sorted((sidecar.admin._records.get(which) for which in starts), key=lambda r: r.ticket.started_s)
    assert [r.ticket.request.features.max_tokens for r in records] == [2, 3, 4, 7, 8, 9]
    assert sidecar.gate.ranking.tickets() == []


async def test_both_doors_drain_together_and_health_says_so_first(start, client, fakes):
    _, sidecar = await start(
        lambda seen: fakes.Script([OK]), {"engine": {"slots": 1}, "grpc": {"listen": ["127.0.0.1:0"]}}
    )
    address = sidecar.rpc.addresses[0]
    await until(lambda: sidecar.admin.ready)
    async with Client(address) as rpc, rpc.admit(subject("x")) as runs:
        await runs.turn()
        for service in ("", "liveness", *SERVICES):
            assert await health_of(address, service) == SERVING
        draining = asyncio.ensure_future(drain(sidecar, 60, never()))
        await until(lambda: sidecar.admin.draining)
        for service in ("", "readiness", *SERVICES):
            assert await health_of(address, service) == NOT_SERVING
        assert await health_of(address, "liveness") == SERVING
        late = rpc.scheduling.Admit()
        await late.write(scheduling_pb2.AdmitRequest(ask=scheduling_pb2.Ask()))
        assert await late.code() is grpc.StatusCode.UNAVAILABLE
        assert (await client.ask(sidecar, "POST", "/v1/completions", completion(2))).status == 503
        assert not draining.done(), "a stream of the gRPC door is open"
        await runs.finish(3)
    async with asyncio.timeout(LIMIT_S):
        await draining


async def test_health_is_not_serving_before_the_gate_closes(start, fakes, monkeypatch):
    _, sidecar = await start(lambda seen: fakes.Script([OK]), {"grpc": {"listen": ["127.0.0.1:0"]}})
    seen = []
    close = sidecar.gate.close

    def closing(*arguments):
        seen.append(sidecar.rpc.health.servicer._server_status[""])
        close(*arguments)

    monkeypatch.setattr(sidecar.gate, "close", closing)
    await drain(sidecar, 60, never())
    assert seen == [NOT_SERVING]


async def test_readiness_follows_the_engine(start, fakes):
    settings = {"grpc": {"listen": ["127.0.0.1:0"]}, "engine": {"metricsIntervalSeconds": 0.02}}
    engine, sidecar = await start(lambda seen: fakes.Script([OK]), settings)
    address = sidecar.rpc.addresses[0]
    async with asyncio.timeout(LIMIT_S):
        while await health_of(address, "readiness") != SERVING:
            pass
        await engine.__aexit__(None, None, None)
        while await health_of(address, "readiness") != NOT_SERVING:
            pass
    assert await health_of(address, "") == SERVING


async def test_a_socket_of_the_machine_s_own_is_closed_to_others_and_removed(start, fakes, tmp_path):
    path = tmp_path / "grpc.sock"
    _, sidecar = await start(lambda seen: fakes.Script([OK]), {"grpc": {"listen": [f"unix:{path}", "[::1]:0"]}})
    assert stat.S_IMODE(path.stat().st_mode) == 0o660
    for address in sidecar.rpc.addresses:
        async with Client(address) as rpc:
            assert (await rpc.status()).version


async def test_an_address_that_is_taken_is_an_oserror(start, fakes):
    _, sidecar = await start(lambda seen: fakes.Script([OK]), {"grpc": {"listen": ["127.0.0.1:0"]}})
    with pytest.raises(OSError, match="cannot be had"):
        await start(lambda seen: fakes.Script([OK]), {"grpc": {"listen": [sidecar.rpc.addresses[0]]}})


def credentials(*, own=False):
    read = [(TLS / name).read_bytes() for name in ("ca.pem", "client.key", "client.pem")]
    return grpc.ssl_channel_credentials(read[0], *(read[1:] if own else ()))


@pytest.mark.parametrize("client_ca", [False, True])
async def test_tls_and_certificates_of_clients(start, fakes, client_ca):
    files = {"tlsCertFile": str(TLS / "server.pem"), "tlsKeyFile": str(TLS / "server.key")}
    if client_ca:
        files["tlsClientCaFile"] = str(TLS / "ca.pem")
    _, sidecar = await start(lambda seen: fakes.Script([OK]), {"grpc": {"listen": ["0.0.0.0:0"], **files}})
    address = sidecar.rpc.addresses[0].replace("0.0.0.0", "localhost")
    served = []
    for name, given in (("plain", None), ("tls", credentials()), ("own", credentials(own=True))):
        async with Client(address, given) as rpc:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await rpc.introspection.GetStatus(introspection_pb2.GetStatusRequest(), timeout=5)
                served.append(name)
    assert served == (["own"] if client_ca else ["tls", "own"])


async def ping_hard(address, seconds):
    """A stream that says nothing, on a connection that pings all the time; how it ended, None while it is open."""
    options = [
        ("grpc.keepalive_time_ms", 50),
        ("grpc.keepalive_timeout_ms", 5000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.http2.min_sent_ping_interval_without_data_ms", 50),
        ("grpc.http2.min_time_between_pings_ms", 50),
    ]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        call = channel.stream_stream("/sagesched.v1.SchedulingService/Admit")()
        await call.write(scheduling_pb2.AdmitRequest(ask=scheduling_pb2.Ask()).SerializeToString())
        await call.read()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await call.code()


async def test_clients_may_ping_often(start, fakes, monkeypatch):
    """The same client is cut by a server with grpc's own defaults, so the options are what keeps its stream."""
    settings = {"grpc": {"listen": ["127.0.0.1:0"]}}
    _, sidecar = await start(lambda seen: fakes.Script([OK]), settings)
    assert await ping_hard(sidecar.rpc.addresses[0], 2) is None
    monkeypatch.setattr(door_module, "OPTIONS", (("grpc.so_reuseport", 0),))
    _, other = await start(lambda seen: fakes.Script([OK]), settings)
    assert await ping_hard(other.rpc.addresses[0], LIMIT_S) is grpc.StatusCode.UNAVAILABLE


async def reflected(address, **asked):
    async with grpc.aio.insecure_channel(address) as channel:
        call = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
        await call.write(reflection_pb2.ServerReflectionRequest(**asked))
        return await call.read()


async def test_reflection_is_off_until_it_is_asked_for(start, fakes):
    _, sidecar = await start(lambda seen: fakes.Script([OK]), {"grpc": {"listen": ["127.0.0.1:0"]}})
    with pytest.raises(grpc.aio.AioRpcError, match="UNIMPLEMENTED"):
        await reflected(sidecar.rpc.addresses[0], list_services="")


async def test_reflection_gives_what_grpcurl_needs(start, fakes):
    _, sidecar = await start(lambda seen: fakes.Script([OK]), {"grpc": {"listen": ["127.0.0.1:0"], "reflection": True}})
    address = sidecar.rpc.addresses[0]
    listed = (await reflected(address, list_services="")).list_services_response.service
    assert {*SERVICES, "grpc.health.v1.Health"} <= {service.name for service in listed}
    for service in SERVICES:
        files = (await reflected(address, file_containing_symbol=service)).file_descriptor_response
        found = [FileDescriptorProto.FromString(data) for data in files.file_descriptor_proto]
        known = {file.name for file in found}
        for dependency in {name for file in found for name in file.dependency} - known:
            assert (await reflected(address, file_by_filename=dependency)).HasField("file_descriptor_response")
        assert all(name.startswith(("sagesched/v1/", "google/protobuf/")) for name in known)


def shown(message):
    """As grpcurl prints it: names as in the .proto file."""
    return MessageToDict(message, preserving_proto_field_name=True)


def test_what_docs_show_of_grpcurl_names_methods_and_fields_that_there_are():
    page = (Path(__file__).parents[2] / "docs" / "grpc.md").read_text("utf-8")
    calls = re.findall(r"-d '(\{.*\})' \\\n\s+127.0.0.1:50051 sagesched\.v1\.(\w+)/(\w+)", page)
    calls += [(text, "SchedulingService", "Admit") for text in re.findall(r"echo '(.*)'", page)]
    assert {method for _, _, method in calls} == {"Predict", "Admit", "Explain"}
    files = {"SchedulingService": scheduling_pb2, "IntrospectionService": introspection_pb2}
    for text, service, method in calls:
        Parse(text, getattr(files[service], f"{method}Request")())


async def test_what_a_json_client_sees(start, fakes):
    """Names and forms in the JSON that grpcurl prints, which docs/grpc.md shows."""
    _, sidecar = await start(lambda seen: fakes.Script([OK]), {"grpc": {"listen": ["127.0.0.1:0"]}})
    async with Client(sidecar.rpc.addresses[0]) as rpc:
        async with rpc.admit(subject("x", max_tokens=9), request_id="r") as stay:
            granted = shown(await stay.turn())
            assert set(granted) == {"request_id", "waited", "predicted_tokens"}
            assert granted["waited"].endswith("s")
            running = shown(await rpc.explain("r"))
            assert running["phase"] == "running"
            assert await stay.finish(5)
        ended = shown(await rpc.explain("r"))
        assert ended["ending"]["how"] == "answered"
        assert ended["ending"]["output_tokens"] == 5
        status = await rpc.status()
        assert json.loads(status.document_json)["settings_digest"] == status.settings_digest
        told = await rpc.introspection.GetSettings(introspection_pb2.GetSettingsRequest())
        assert told.digest == status.settings_digest
        assert json.loads(told.document_json)["grpc"]["listen"] == ["127.0.0.1:0"]
