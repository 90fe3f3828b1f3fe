"""One policy against an API server in memory: begun anew after every failure, it always comes to the same end."""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import pytest
from api_server import ApiServer, serving

from sagesched.settings import SettingsError
from sagesched_operator.kube import Connection, Kube, KubeError
from sagesched_operator.pods import Images
from sagesched_operator.reconcile import Key, Reconciler
from sagesched_operator.sidecars import Sidecars

KEY = Key("team", "chat")
PATH = "/apis/sagesched.io/v1alpha1/namespaces/team/sageschedpolicies/chat"
SPEC = {"podSet": {"model": "m", "replicas": 2, "engine": {"kind": "simulator"}}}


class World:
    """A policy, an API server, and operators that come and go."""

    def __init__(self, server: ApiServer, url: str) -> None:
        self.server = server
        self._url = url
        self.defaults: Callable[[], Mapping[str, Any]] = dict
        server.put(PATH, {"metadata": {"namespace": "team", "name": "chat"}, "spec": SPEC})

    async def reconcile(self) -> float | None:
        """By an operator that remembers nothing."""
        connection = Connection(self._url, False, lambda: None)
        async with Kube(connection) as kube, Sidecars(port=9) as sidecars:
            doors = Reconciler(kube, sidecars, Images("s", "v", "i"), self.defaults, lambda: "2026-01-01T00:00:00Z")
            return await doors.reconcile(KEY)

    @property
    def kinds(self) -> list[str]:
        return sorted(one["kind"] for one in self.server.objects.values() if "kind" in one and one["kind"] != "Event")


@pytest.fixture
async def world() -> AsyncIterator[World]:
    server = ApiServer()
    async with serving(server) as url:
        yield World(server, url)


MADE = ["ConfigMap", "PodDisruptionBudget", "Service", "ServiceAccount", "StatefulSet"]


async def test_it_makes_what_a_policy_stands_for(world: World) -> None:
    await world.reconcile()
    assert world.kinds == MADE
    status = world.server.objects[PATH]["status"]
    assert {one["type"] for one in status["conditions"]} >= {"Accepted", "Ready"}
    assert status["settingsDigest"] in world.server.of_kind("Event")[0]["note"]


async def test_a_second_time_nothing_is_written(world: World) -> None:
    await world.reconcile()
    written = len(world.server.writes)
    await world.reconcile()
    assert len(world.server.writes) == written


@pytest.mark.parametrize("writes", range(8))
async def test_an_operator_that_dies_anywhere_leaves_nothing_that_the_next_does_not_finish(
    world: World, writes: int
) -> None:
    world.server.fail_after = writes
    with contextlib.suppress(KubeError):
        await world.reconcile()
    world.server.fail_after = None
    await world.reconcile()
    assert world.kinds == MADE
    assert world.server.objects[PATH]["status"]["observedGeneration"] == 1


async def test_what_somebody_took_away_or_changed_is_put_right(world: World) -> None:
    await world.reconcile()
    service = next(path for path in world.server.objects if "/services/" in path)
    settings = next(path for path in world.server.objects if "/configmaps/" in path)
    good = world.server.objects[settings]["data"]
    del world.server.objects[service]
    world.server.objects[settings] = world.server.objects[settings] | {"data": {"settings.json": "{}"}}
    await world.reconcile()
    assert world.kinds == MADE
    assert world.server.objects[settings]["data"] == good


async def test_wrong_defaults_are_told_and_change_nothing(world: World) -> None:
    await world.reconcile()
    settings = next(path for path in world.server.objects if "/configmaps/" in path)
    before = world.server.objects[settings]

    def wrong() -> Mapping[str, Any]:
        raise SettingsError("defaults.scheduling.bucketTokens: wrong")

    world.defaults = wrong
    await world.reconcile()
    said = {one["type"]: one for one in world.server.objects[PATH]["status"]["conditions"]}
    assert (said["ConfigResolved"]["reason"], said["Ready"]["status"]) == ("InvalidDefaults", "False")
    assert world.server.objects[settings] == before


async def test_fewer_pods_need_no_budget(world: World) -> None:
    await world.reconcile()
    world.server.objects[PATH]["spec"] = {"podSet": SPEC["podSet"] | {"replicas": 1}}
    await world.reconcile()
    assert "PodDisruptionBudget" not in world.kinds


async def test_an_object_of_somebody_else_is_not_touched(world: World) -> None:
    path = "/api/v1/namespaces/team/services/chat"
    theirs = world.server.put(path, {"kind": "Service", "metadata": {"name": "chat"}, "spec": {"theirs": True}})
    await world.reconcile()
    assert world.server.objects[path] is theirs
    assert world.kinds == ["Service"]


async def test_a_policy_that_is_gone_or_going_needs_nothing(world: World) -> None:
    world.server.objects[PATH]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    await world.reconcile()
    del world.server.objects[PATH]
    await world.reconcile()
    assert world.server.writes == []


async def test_the_calls_for_one_policy_do_not_grow_with_the_others(world: World) -> None:
    async def calls() -> int:
        async with Kube(Connection(world._url, False, lambda: None)) as kube, Sidecars(port=9) as sidecars:
            doors = Reconciler(kube, sidecars, Images("s", "v", "i"), dict, lambda: "2026-01-01T00:00:00Z")
            await doors.reconcile(KEY)
            return kube.calls

    await world.reconcile()
    alone = await calls()
    for n in range(50):
        world.server.put(f"{PATH}-{n}", {"metadata": {"namespace": "team", "name": f"chat-{n}"}, "spec": SPEC})
    assert await calls() == alone
    assert alone <= 14
