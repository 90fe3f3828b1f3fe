"""The only place that calls the API server. Every call is bounded in time; what it raises is a KubeError."""

import ssl
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import aiohttp
import msgspec

from sagesched_operator.policy import API_VERSION, GROUP, PLURAL, VERSION

FIELD_MANAGER = "sagesched-operator"
TIMEOUT_SECONDS = 15.0
_PLURALS = {
    "ConfigMap": ("api/v1", "configmaps"),
    "Service": ("api/v1", "services"),
    "ServiceAccount": ("api/v1", "serviceaccounts"),
    "StatefulSet": ("apis/apps/v1", "statefulsets"),
    "Deployment": ("apis/apps/v1", "deployments"),
    "PodDisruptionBudget": ("apis/policy/v1", "poddisruptionbudgets"),
    "Pod": ("api/v1", "pods"),
    "Event": ("apis/events.k8s.io/v1", "events"),
    "SageSchedPolicy": (f"apis/{GROUP}/{VERSION}", PLURAL),
}
APPLY, MERGE, JSON = "application/apply-patch+yaml", "application/merge-patch+json", "application/json"

Object = Mapping[str, Any]


class KubeError(Exception):
    """A call that did not succeed; `status` is 0 where there was no answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}" if status else message)
        self.status = status


class Connection(NamedTuple):
    """Where the API server is, and who asks."""

    server: str
    tls: ssl.SSLContext | bool
    token: Callable[[], str | None]
    """Asked before each call, since a pod's token changes each hour."""


class Kube:
    """Calls by kind, namespace and name. One aiohttp session; `async with`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._session: aiohttp.ClientSession | None = None
        self.calls = 0
        """Made so far."""

    async def __aenter__(self) -> "Kube":
        timeout = aiohttp.ClientTimeout(total=TIMEOUT_SECONDS)
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=self._connection.tls), timeout=timeout)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def get(self, kind: str, namespace: str, name: str) -> Object | None:
        """The object, or None where there is none."""
        try:
            found: Object = await self._call("GET", path(kind, namespace, name))
        except KubeError as error:
            if error.status == 404:
                return None
            raise
        return found

    async def list(self, kind: str, namespace: str, selector: str) -> list[Object]:
        """The objects of a namespace with these labels."""
        found = await self._call("GET", path(kind, namespace), {"labelSelector": selector})
        return list(found["items"])

    async def apply(self, made: Object) -> Object:
        """Server-side apply of an object that the operator owns, as its field manager."""
        meta = made["metadata"]
        where = path(made["kind"], meta["namespace"], meta["name"])
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        found: Object = await self._call("PATCH", where, query, made, APPLY)
        return found

    async def delete(self, kind: str, namespace: str, name: str, uid: str) -> None:
        """Delete that very object; none of that uid is as good."""
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        try:
            await self._call("DELETE", path(kind, namespace, name), {}, body, JSON)
        except KubeError as error:
            if error.status not in (404, 409):
                raise

    async def set_status(self, namespace: str, name: str, status: Object) -> None:
        """Write a policy's status. A policy that is gone needs none."""
        body = {"apiVersion": API_VERSION, "kind": "SageSchedPolicy", "status": status}
        try:
            await self._call("PATCH", path("SageSchedPolicy", namespace, name) + "/status", {}, body, MERGE)
        except KubeError as error:
            if error.status != 404:
                raise

    async def create(self, made: Object) -> None:
        """Create an object under a generated name."""
        await self._call("POST", path(made["kind"], made["metadata"]["namespace"]), {}, made, JSON)

    async def _call(
        self,
        method: str,
        where: str,
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
        kind: str = JSON,
    ) -> Any:
        assert self._session is not None, "use it as a context"
        self.calls += 1
        token = self._connection.token()
        headers = {"Content-Type": kind} | ({"Authorization": f"Bearer {token}"} if token else {})
        data = None if body is None else msgspec.json.encode(body)
        url = f"{self._connection.server.rstrip('/')}/{where}"
        try:
            async with self._session.request(method, url, params=query, data=data, headers=headers) as answer:
                content = await answer.read()
        except (TimeoutError, aiohttp.ClientError) as error:
            raise KubeError(0, f"{method} {where}: {error or type(error).__name__}") from error
        if answer.status >= 400:
            raise KubeError(answer.status, f"{method} {where}: {_message(content)}")
        return msgspec.json.decode(content)


def path(kind: str, namespace: str, name: str | None = None) -> str:
    """Where objects of a kind are, or one of them."""
    group, plural = _PLURALS[kind]
    return f"{group}/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "")


def _message(content: bytes) -> str:
    try:
        return str(msgspec.json.decode(content)["message"])
    except (msgspec.DecodeError, KeyError, TypeError):
        return content[:200].decode(errors="replace")
