"""A real sidecar killed with SIGKILL while gRPC clients report: what Report acknowledged must be in the store."""

import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import sys
from pathlib import Path

import grpc

from sagesched.embed import open_embedder
from sagesched.settings import Settings
from sagesched_client.client import Client, subject
from sagesched_pb.v1 import scheduling_pb2 as calls
from sagesched_store.apart import StoreApart
from sagesched_store.place import FolderPlace
from sagesched_store.record import Space

ROWS = 100_000
CLIENTS = 8


async def life(folder: Path, numbers: "itertools.count[int]", rng: random.Random) -> list[int]:
    """One life of a sidecar: the lengths that were reported and acknowledged, each of them once."""
    command = [
        *(sys.executable, "-m", "sagesched_sidecar", "--upstream", "http://127.0.0.1:1", "--port", "0"),
        *("--grpc", "127.0.0.1:0", "--history-store", "embedded", "--history-path", str(folder)),
    ]
    child = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, start_new_session=True
    )
    async with asyncio.timeout(60):
        address = json.loads(await child.stdout.readline())["listening"]["grpc"][0]
    acknowledged: list[int] = []

    async def report(client: Client) -> None:
        while True:
            number = next(numbers)
            event = calls.Event(completion=calls.Completion(output_tokens=number))
            if await client.report(event, request_id=f"r{number}", subject=subject(f"prompt {number}", model="m")):
                acknowledged.append(number)

    async with Client(address) as client:
        reporting = [asyncio.create_task(report(client)) for _ in range(CLIENTS)]
        while not acknowledged:
            await asyncio.sleep(0.01)
        await asyncio.sleep(rng.uniform(0.0, 0.5))
        if rng.random() < 0.5:
            os.killpg(child.pid, signal.SIGKILL)  # the store's process in the same instant
        else:
            child.kill()
        await child.wait()
        for task in reporting:
            with contextlib.suppress(grpc.aio.AioRpcError):
                await task
    return acknowledged


async def survive(folder: Path, lives: int, seed: int) -> dict[str, int]:
    """So many lives over one folder; after each the store opens whole, with all that was ever acknowledged."""
    rng, numbers = random.Random(seed), itertools.count(1)
    embedder = open_embedder(Settings().embedding)
    acknowledged: list[int] = []
    for _ in range(lives):
        acknowledged += await life(folder, numbers, rng)
        store = StoreApart(FolderPlace(str(folder)), Space(embedder.name, embedder.dimensions), ROWS)
        assert store.health == (0, "")
        stored = [record.output_tokens for record in store.newest(ROWS)]
        store.close()
        assert len(set(stored)) == len(stored), "one sample for each report"
        assert set(acknowledged) <= set(stored)
    return {"lives": lives, "acknowledged": len(acknowledged)}
