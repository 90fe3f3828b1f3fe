"""What the sidecar answers itself: health, readiness, metrics, status and explanations. No prompt text in any of it."""

import dataclasses
import ipaddress
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from typing import Any

import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST

from sagesched.explanation import explain
from sagesched.scoreboard import Calibration
from sagesched_sidecar.durable_history import DurableHistory
from sagesched_sidecar.engine_mode import EngineMode
from sagesched_sidecar.gate import Gate
from sagesched_sidecar.live import Effective, LiveSettings
from sagesched_sidecar.monitor import EngineMonitor
from sagesched_sidecar.queue_view import queue_document, rows_asked
from sagesched_sidecar.records import Record, Records
from sagesched_sidecar.shadow_estimate import ShadowEstimate
from sagesched_sidecar.telemetry import Telemetry

Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
EXPLAIN = "/sagesched/explain/"


class Admin:
    """Handlers by path."""

    def __init__(
        self,
        live: LiveSettings,
        gate: Gate,
        monitor: EngineMonitor,
        telemetry: Telemetry,
        records: Records,
        history: DurableHistory,
        mode: EngineMode,
        shadow: ShadowEstimate,
    ) -> None:
        self._live = live
        self._gate = gate
        self._monitor = monitor
        self._telemetry = telemetry
        self._records = records
        self._history = history
        self._mode = mode
        self._shadow = shadow
        self.draining = False

    def handlers(self) -> dict[str, Handler]:
        """By path; a path that ends with a slash takes whatever follows."""
        return {
            "/healthz": self._health,
            "/readyz": self._ready,
            "/metrics": self._metrics,
            "/sagesched/status": self._guarded(self._status),
            "/sagesched/settings": self._guarded(self._whole_settings),
            "/sagesched/queue": self._guarded(self._queue),
            EXPLAIN: self._guarded(self._explain),
        }

    async def _health(self, _: web.BaseRequest) -> web.Response:
        return _json({"alive": True})

    async def _ready(self, _: web.BaseRequest) -> web.Response:
        facts = {"ready": self.ready, "draining": self.draining, "engine_reachable": self._monitor.reachable}
        return _json(facts, 200 if self.ready else 503)

    async def _metrics(self, _: web.BaseRequest) -> web.Response:
        return web.Response(body=self._telemetry.exposition(), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _status(self, _: web.BaseRequest) -> web.Response:
        return _json(self.status())

    def status(self) -> dict[str, Any]:
        """The sidecar now, as both doors show it."""
        engine = self._monitor
        return {
            "version": version("sagesched"),
            "settings_digest": self._live.now.digest,
            "settings": self._settings(),
            "policy": self._live.now.settings.scheduling.policy,
            "mode": self._mode.now._asdict(),
            "shadow": self._shadow.status() if self._mode.now.effective == "shadow" else None,
            "draining": self.draining,
            "shadow_candidate": self._gate.comparing.status(),
            "engine": {"reachable": engine.reachable, **engine.state._asdict()},
            "gate": dataclasses.asdict(self._gate.snapshot()),
            "history_rows": len(self._gate.ranking.predictor.window),
            "history": self._history.status(),
            "finished_kept": len(self._records),
            "calibration": {name: _calibration(of) for name, of in self._gate.ranking.scoreboard.calibrations()},
        }

    def _settings(self) -> dict[str, Any]:
        now = self._live.now
        return {
            "digest": now.digest,
            "file_digest": now.file_digest,
            "revision": now.revision,
            "pending": [{"path": change.path, "why": change.restart} for change in now.pending],
            "idle": [one._asdict() for one in now.idle],
            "last_reload": self._live.last._asdict(),
        }

    async def _whole_settings(self, _: web.BaseRequest) -> web.Response:
        return _json(self._settings() | {"settings": self._live.now.settings})

    async def _queue(self, request: web.BaseRequest) -> web.Response:
        try:
            rows = rows_asked(request)
        except ValueError as error:
            return _json({"error": str(error)}, 400)
        max_wait_s = self._live.now.settings.scheduling.max_wait_seconds
        return _json(queue_document(self._gate.ranking, self._gate.now_s, max_wait_s, rows))

    async def _explain(self, request: web.BaseRequest) -> web.Response:
        request_id = request.path.removeprefix(EXPLAIN)
        found = self.explanation(request_id)
        if found is None:
            return _json({"error": f"no request {request_id!r} waits, runs or ended lately"}, 404)
        return _json(found)

    def explanation(self, request_id: str) -> dict[str, Any] | None:
        """Why a request stands, or stood, where it does; None where nothing is known of it, or not any more."""
        try:
            return dataclasses.asdict(self._gate.ranking.explain(request_id))
        except KeyError:
            record = self._records.get(request_id)
            return None if record is None else self._explain_ended(record)

    def _explain_ended(self, record: Record) -> dict[str, Any]:
        explanation = explain(record.ticket, self._live.now.settings.scheduling.policy, None)
        ended = {key: value for key, value in record._asdict().items() if key != "ticket"}
        waits = self._shadow.of(record.ticket.request.id)
        shadow = {"shadow": waits._asdict()} if waits else {}
        return dataclasses.asdict(explanation) | {"phase": "ended", "ended": ended} | shadow

    @property
    def effective(self) -> Effective:
        """The settings in use."""
        return self._live.now

    @property
    def ready(self) -> bool:
        """Whether requests should be sent here."""
        return not self.draining and self._monitor.reachable

    def _guarded(self, handler: Handler) -> Handler:
        async def guarded(request: web.BaseRequest) -> web.StreamResponse:
            if self._live.now.settings.server.explain_to_all or _is_loopback(request):
                return await handler(request)
            return _json({"error": "only for loopback clients; server.explainToAll opens it"}, 403)

        return guarded


def _calibration(of: Calibration) -> dict[str, Any]:
    return of._asdict() | {"levels": {name: level._asdict() for name, level in of.levels.items()}}


def _is_loopback(request: web.BaseRequest) -> bool:
    peer = request.transport.get_extra_info("peername") if request.transport else None
    try:
        return isinstance(peer, tuple) and ipaddress.ip_address(peer[0]).is_loopback
    except ValueError:
        return False


def _json(value: Any, status: int = 200) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), status=status, content_type="application/json")
