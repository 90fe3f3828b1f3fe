"""Admission without a network, and the gRPC door before it: both with the test's own clock and journal."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
from gate_world import DIMENSIONS, World
from msgspec.structs import replace

from sagesched.request import Outcome, Request
from sagesched.settings import Grpc
from sagesched_sidecar.admission import Admission, Visit
from sagesched_sidecar.gateway import Gateway
from sagesched_sidecar.live import LiveSettings
from sagesched_sidecar.orders import OrderDesk
from sagesched_sidecar.prompts import PromptEmbedder
from sagesched_sidecar.records import Records
from sagesched_sidecar.settings_file import Loaded
from sagesched_sidecar.telemetry import Telemetry
from sagesched_sidecar.traffic import Traffic


class AxisEmbedder:
    """Every prompt is the same one."""

    name = "axis"
    dimensions = DIMENSIONS

    def __init__(self, *, blocking: bool = False) -> None:
        self.blocking = blocking

    def embed(self, text: str) -> Any:
        return np.eye(DIMENSIONS, dtype=np.float32)[0]


class Pages:
    """A journal that writes when the test says so."""

    def __init__(self, *, broken: bool = False) -> None:
        self.written: list[tuple[str, Outcome]] = []
        self.writes: list[asyncio.Future[None]] = []
        self.broken = broken

    def record(self, request: Request, embedding: Any, outcome: Outcome) -> "asyncio.Future[None]":
        if self.broken:
            raise OSError("no space left on device")
        self.written.append((request.id, outcome))
        self.writes.append(asyncio.get_running_loop().create_future())
        return self.writes[-1]


class Hall:
    """Admission with its world."""

    def __init__(self, journal: Any = None, *, blocking: bool = False, **sections: Any) -> None:
        self.world = World("sjf", **sections)
        self.telemetry, self.records, self.traffic = Telemetry(), Records(), Traffic()
        prompts = PromptEmbedder(AxisEmbedder(blocking=blocking), 1.0, self.telemetry.troubled)
        self.admission = Admission(
            self.world.gate, prompts, self.telemetry, self.records, clock=self.world.clock, journal=journal
        )

    def visit(self, which: str, text: str | None = "a prompt", **more: Any) -> Visit:
        request = Request(id=which, model="m", arrival_s=self.world.clock())
        return self.admission.visit(request, text, body_bytes=8, door="/test", **more)

    def value(self, name: str, **labels: str) -> float | None:
        return self.telemetry.registry.get_sample_value(f"sagesched_{name}", labels)

    def ended(self) -> dict[str, float]:
        """How many requests ended how."""
        hows = ("answered", "unmeasured", "left", "engine-error")
        return {how: n for how in hows if (n := self.value("requests_total", outcome=how))}

    @asynccontextmanager
    async def door(self, max_streams: int = 1000) -> AsyncIterator[str]:
        """The scheduling service on a free port of the loopback interface."""
        from sagesched_sidecar.rpc.door import open_door
        from sagesched_sidecar.rpc.scheduling import Scheduling

        grpc = Grpc(listen=("127.0.0.1:0",), max_streams=max_streams)
        live = LiveSettings(None, Loaded.without_file(replace(self.world.settings, grpc=grpc)))
        gateway = Gateway(live.now.settings, lambda header, outcome: None)
        desk = OrderDesk(live, self.admission.estimate, gateway, unknown_class=lambda: None)
        service = Scheduling(self.admission, desk, self.traffic, live, dimensions=DIMENSIONS)
        async with open_door(grpc, None, [service.handler()], ready=True, last_words_s=0.1) as door:
            yield door.addresses[0]
