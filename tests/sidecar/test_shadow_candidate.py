"""Another policy beside the live one: both are reported, and nothing goes otherwise because of it."""

import asyncio
import json
import random

from gate_world import World, serve_all
from prometheus_client.parser import text_string_to_metric_families

from sagesched.request import Outcome

SHADOW = {"policy": "sjf"}


async def served(world: World, seed: int) -> list[str]:
    """Thirty requests on one slot, each a hundredth of a second for each of its max_tokens; who started, in order."""
    rng = random.Random(seed)
    for k in range(30):
        await world.enter(f"r{k}", tokens=rng.choice([3, 30, 300]))
        world.clock.now_s += rng.random() / 10
    world.tasks["r11"].cancel()
    while any(not task.done() for task in world.tasks.values()) or world.gate.snapshot().running:
        await asyncio.sleep(0)
        for task in world.tasks.values():
            if task.done() and not task.cancelled() and not task.result().ended:
                tokens = task.result().ticket.request.features.max_tokens
                world.clock.now_s += tokens / 100
                task.result().finish(Outcome(output_tokens=tokens))
                break
    return world.granted()


async def test_the_candidate_is_found_to_wait_less_and_changes_no_order() -> None:
    alone, beside = World("fcfs"), World("fcfs", scheduling={"shadow": SHADOW})
    assert await served(alone, 5) == await served(beside, 5)
    assert alone.gate.comparing.status() is None
    found = beside.gate.comparing.status()
    assert found is not None
    assert (found["policy"], found["trouble"], found["requests"]) == ("sjf", None, 29)
    assert 0 < found["agreed"] < found["choices"]
    assert found["wait"]["candidate"]["mean_s"] < found["wait"]["live"]["mean_s"] / 1.5
    beside.assert_empty()


async def test_the_live_order_as_played_is_the_one_that_was() -> None:
    """One slot, nothing but waiting and serving: the model is exact then."""
    world = World("sjf", scheduling={"shadow": {"policy": "fcfs"}})
    real: list[float] = []
    world.counts.waited = lambda ticket, outcome, seconds: real.append(seconds) if outcome == "granted" else None
    await served(world, 7)
    found = world.gate.comparing.status()
    assert found is not None
    assert found["requests"] == len(real)
    assert abs(found["wait"]["live"]["mean_s"] - sum(real) / len(real)) < 0.1


async def test_the_same_policy_agrees_in_everything() -> None:
    world = World("sjf", scheduling={"shadow": SHADOW})
    await served(world, 3)
    found = world.gate.comparing.status()
    assert found is not None
    assert found["agreed"] == found["choices"] > 10
    assert found["wait"]["live"] == found["wait"]["candidate"]


async def test_a_candidate_that_comes_or_goes_while_requests_wait() -> None:
    world = World("fcfs")
    for k in range(6):
        await world.enter(f"r{k}", tokens=6 - k)
    world.gate.apply(world.changed(scheduling={"shadow": SHADOW}))
    await world.enter("r6")
    world.gate.apply(world.changed(scheduling={"shadow": {"policy": "mean"}}))
    await world.enter("r7")
    assert await serve_all(world) == [f"r{k}" for k in range(8)]
    found = world.gate.comparing.status()
    assert found is not None
    assert (found["policy"], found["requests"], found["choices"]) == ("mean", 1, 6)
    world.gate.apply(world.changed())
    assert world.gate.comparing.status() is None
    world.assert_empty()


CHAT = json.dumps({"model": "m", "messages": [{"role": "user", "content": "word"}]}).encode()
ANSWER = b'{"choices": [{"finish_reason": "stop"}], "usage": {"completion_tokens": 6}}'
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(ANSWER), ANSWER)


async def test_both_are_in_the_status_and_the_metrics(start, client, fakes) -> None:
    settings = {"engine": {"slots": 1}, "scheduling": {"shadow": {"policy": "fcfs"}}}
    _, sidecar = await start(lambda seen: fakes.Script([OK]), settings)
    for _ in range(3):
        assert (await client.ask(sidecar, "POST", "/v1/chat/completions", CHAT)).status == 200
    status = json.loads((await client.ask(sidecar, "GET", "/sagesched/status")).body)
    assert (status["shadow_candidate"]["policy"], status["shadow_candidate"]["requests"]) == ("fcfs", 3)
    reply = await client.ask(sidecar, "GET", "/metrics")
    found = {family.name: family.samples for family in text_string_to_metric_families(reply.body.decode())}
    assert found["sagesched_shadow_candidate_requests"][0].value == 3
    assert {s.labels["agrees"] for s in found["sagesched_shadow_candidate_choices"]} == {"true", "false"}
    assert {s.labels["order"] for s in found["sagesched_shadow_candidate_wait_seconds"]} == {"live", "candidate"}
