"""grpc.health.v1: the server and its services, and the names that probes ask for."""

import asyncio

from grpc_health.v1.health import aio
from grpc_health.v1.health_pb2 import HealthCheckResponse

LIVENESS = "liveness"
READINESS = "readiness"


class Health:
    """`liveness` serves as long as the process does; `readiness` while requests should be sent here, as /readyz says;
    the server ("") and its services until a drain begins."""

    def __init__(self, *services: str) -> None:
        self.servicer = aio.HealthServicer()
        self._until_drain = ("", *services)
        self._ready: bool | None = None
        self._draining = False
        self._setting: asyncio.Task[None] | None = None

    async def begin(self, *, ready: bool) -> None:
        """The door has opened."""
        for service in (*self._until_drain, LIVENESS):
            await self.servicer.set(service, HealthCheckResponse.SERVING)
        await self._set_ready(ready)

    def look(self, *, ready: bool) -> None:
        """The engine was looked at; whether requests should be sent here."""
        if ready != self._ready and not self._draining:
            self._setting = asyncio.get_running_loop().create_task(self._set_ready(ready))

    async def drain(self) -> None:
        """Nothing is to be sent here any more."""
        self._draining = True
        for service in (*self._until_drain, READINESS):
            await self.servicer.set(service, HealthCheckResponse.NOT_SERVING)

    async def _set_ready(self, ready: bool) -> None:
        self._ready = ready
        status = HealthCheckResponse.SERVING if ready and not self._draining else HealthCheckResponse.NOT_SERVING
        await self.servicer.set(READINESS, status)
