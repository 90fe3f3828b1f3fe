"""A real Qdrant server for tests, which they may kill and start again, and collections on it."""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from urllib.error import URLError

from qdrant_client.http.exceptions import ResponseHandlingException
from store_records import SPACE

from sagesched_store.collection import Shape, create, name_of
from sagesched_store.connection import connect
from sagesched_store.place import ServerPlace
from sagesched_store.server import ServerStore

MISSING = "needs a Qdrant server: name its binary by QDRANT_BINARY, or have a `qdrant` on PATH"
START_SECONDS = 60.0


def binary() -> str | None:
    """The server that is to be used: the one that is named, or on PATH."""
    return os.environ.get("QDRANT_BINARY") or shutil.which("qdrant")


class Qdrant:
    """One server with a folder and ports of its own; `environment` adds to its settings."""

    def __init__(self, program: str, folder: Path, **environment: str) -> None:
        self._program, self._environment = program, environment
        self._folder = folder / "qdrant"
        self._folder.mkdir()
        self._port, grpc_port = free_ports(2)
        self.url = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._settings = {
            "QDRANT__STORAGE__STORAGE_PATH": str(self._folder / "storage"),
            "QDRANT__STORAGE__SNAPSHOTS_PATH": str(self._folder / "snapshots"),
            "QDRANT__SERVICE__HOST": "127.0.0.1",
            "QDRANT__SERVICE__HTTP_PORT": str(self._port),
            "QDRANT__SERVICE__GRPC_PORT": str(grpc_port),
            "QDRANT__TELEMETRY_DISABLED": "true",
            "QDRANT__LOG_LEVEL": "WARN",
        }

    def start(self) -> None:
        """Returns once it answers."""
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [self._program],
                cwd=self._folder,
                env=os.environ | self._settings | self._environment,
                stdout=log,
                stderr=log,
            )
        until_s = time.monotonic() + START_SECONDS
        while not self._answers():
            assert self._process.poll() is None, (self._folder / "log").read_text()
            assert time.monotonic() < until_s, "Qdrant does not answer"
            time.sleep(0.05)

    def kill(self) -> None:
        """As by SIGKILL."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)
            self._process.kill()
            self._process.wait()

    def hang(self) -> None:
        """It is there, and answers nothing, until it is killed."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False


class Collections:
    """Collections of one test on a server, whose names nobody else has."""

    def __init__(self, url: str, **place: object) -> None:
        self.place = ServerPlace(url=url, prefix=f"t{secrets.token_hex(4)}", timeout_s=20.0, **place)  # type: ignore[arg-type]
        self._writers = 0

    def writer(self) -> ServerPlace:
        """The place as one more process has it."""
        self._writers += 1
        given = {name: getattr(self.place, name) for name in self.place.__struct_fields__}
        return ServerPlace(**given | {"writer": f"w{self._writers}"})

    def make(self, space=SPACE) -> bool:
        """The space's collection; whether it was not there."""
        return create(connect(self.place), self.place, space, Shape())

    def store(self, space=SPACE, rows: int = 100) -> ServerStore:
        """A store of one more process, on a collection that is there."""
        self.make(space)
        return ServerStore(self.writer(), space, rows)

    def name(self, space=SPACE) -> str:
        """The collection's."""
        return name_of(self.place, space)

    def delete(self) -> None:
        """All of them; none where the server is gone."""
        client = connect(self.place)
        try:
            for one in client.get_collections().collections:
                if one.name.startswith(self.place.prefix + "-"):
                    client.delete_collection(one.name)
        except ResponseHandlingException:
            pass


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in held]
    for one in held:
        one.close()
    return ports
