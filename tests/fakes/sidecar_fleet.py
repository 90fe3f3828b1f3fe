"""Several real sidecars that share one Qdrant server, each reached by gRPC; killed and started as a test says."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from sagesched.lengths import LengthDistribution
from sagesched.scoring import crps
from sagesched_client.client import Client, subject
from sagesched_pb.v1 import scheduling_pb2 as calls

START_SECONDS = 300.0
"""On a machine that has other things to do."""


class Member:
    """One sidecar."""

    def __init__(self, settings: Path) -> None:
        self._settings = settings
        self.reported: list[str] = []
        """Ids of reports that were answered, whatever the answer was."""
        self.unanswered: list[str] = []
        """Ids of those that were under way when it was killed."""
        self.failed = 0
        """Predictions that failed while it ran."""
        self.running = False

    async def start(self) -> None:
        """Returns once it listens."""
        command = [*(sys.executable, "-m", "sagesched_sidecar", "--upstream", "http://127.0.0.1:1", "--port", "0")]
        command += ["--grpc", "127.0.0.1:0", "--settings", str(self._settings), "--log-level", "error"]
        self._child = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert self._child.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            address = json.loads(await self._child.stdout.readline())["listening"]["grpc"][0]
        self._client = Client(address)
        self.running = True

    async def kill(self) -> None:
        """As by SIGKILL."""
        self.running = False
        self._child.kill()
        await self._child.wait()
        await self._client.close()

    async def end(self) -> None:
        """As by SIGTERM: what waits is written."""
        self.running = False
        await self._client.close()
        self._child.terminate()
        await self._child.wait()

    async def report(self, request_id: str, prompt: str, tokens: int) -> None:
        """A request that was served elsewhere."""
        event = calls.Event(completion=calls.Completion(output_tokens=tokens))
        try:
            await self._client.report(event, request_id=request_id, subject=subject(prompt, model="m"))
        except grpc.aio.AioRpcError as error:
            if not self.running:
                self.unanswered.append(request_id)
                return
            if error.code() != grpc.StatusCode.UNAVAILABLE:
                raise
        self.reported.append(request_id)

    async def predict(self, prompt: str) -> LengthDistribution | None:
        """What it would predict; None where it was killed meanwhile."""
        try:
            answer = await self._client.predict(subject(prompt, model="m"))
        except grpc.aio.AioRpcError:
            self.failed += self.running
            return None
        atoms = answer.distribution.atoms
        return LengthDistribution(np.array([a.tokens for a in atoms]), np.array([a.weight for a in atoms]))

    async def crps_of(self, exchanges: list[Any]) -> float:
        """The mean score of its predictions of these."""
        scores = []
        for one in exchanges:
            predicted = await self.predict(one.prompt)
            assert predicted is not None
            scores.append(crps(predicted, float(one.output_tokens)))
        return float(np.mean(scores))
