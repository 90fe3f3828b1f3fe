"""An API server in memory: get, list by label, apply, merge a status, create and delete. It validates nothing and fills
in nothing: for that there is a real one in tests/cluster."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Object = dict[str, Any]


class ApiServer:
    """Objects by path."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.writes: list[tuple[str, str]] = []
        """Method and path of every write that changed something, in order."""
        self.fail_after: int | None = None
        """So many writes succeed; every later one is answered with 500."""
        self._next_uid = 0

    def put(self, path: str, made: Object) -> Object:
        """Set an object up, with a uid of its own."""
        self._next_uid += 1
        meta = made.setdefault("metadata", {})
        meta.setdefault("uid", f"uid-{self._next_uid}")
        meta.setdefault("generation", 1)
        self.objects[path] = made
        return made

    def of_kind(self, kind: str) -> list[Object]:
        """All objects of a kind."""
        return [one for one in self.objects.values() if one.get("kind") == kind]

    async def handle(self, request: web.Request) -> web.Response:
        path = request.path
        if request.method == "GET":
            return self._get(path, request.query.get("labelSelector"))
        if self.fail_after is not None and len(self.writes) >= self.fail_after:
            return web.json_response({"message": "the API server is out of order"}, status=500)
        body = json.loads(await request.read())
        if request.method == "DELETE":
            if self.objects.pop(path, None) is None:
                return web.json_response({"message": "not found"}, status=404)
        elif path.endswith("/status"):
            self.objects[path.removesuffix("/status")]["status"] = body["status"]
        elif request.method == "POST":
            self.put(f"{path}/{len(self.objects)}", body)
        elif not self._apply(path, body):
            return web.json_response(self.objects[path])
        self.writes.append((request.method, path))
        return web.json_response(body)

    def _apply(self, path: str, body: Object) -> bool:
        """Whether it changed anything."""
        there = self.objects.get(path)
        if there is None:
            self.put(path, body)
            return True
        merged = body | {"metadata": there["metadata"] | body["metadata"]}
        merged |= {"status": there["status"]} if "status" in there else {}
        self.objects[path] = merged
        return merged != there

    def _get(self, path: str, selector: str | None) -> web.Response:
        if selector is not None:
            name, _, value = selector.partition("=")
            inside = [one for at, one in self.objects.items() if at.startswith(path + "/")]
            items = [one for one in inside if one["metadata"].get("labels", {}).get(name) == value]
            return web.json_response({"items": items})
        found = self.objects.get(path)
        return web.json_response(found or {"message": "not found"}, status=200 if found else 404)


@asynccontextmanager
async def serving(server: ApiServer) -> AsyncIterator[str]:
    """Its URL, for as long as the context lasts."""
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", server.handle)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await asyncio.wait_for(runner.cleanup(), 5)
