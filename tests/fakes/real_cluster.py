"""A real Kubernetes control plane for tests: etcd and the API server as processes on 127.0.0.1."""

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).parents[2]
TOKEN = "admin-of-the-tests"
JSON = "application/json"
START_SECONDS = 180.0
"""Six seconds where nothing else runs."""
PATIENCE_SECONDS = 120.0

T = TypeVar("T")


def made_by(script: str) -> Path | str:
    """The folder of what a script of `scripts` makes, or what is missing."""
    command = [sys.executable, str(ROOT / "scripts" / script), "where"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return Path(found.stdout.strip()) if found.returncode == 0 else f"a real Kubernetes needs {found.stdout.strip()}"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def until(found: Callable[[], T], what: str) -> T:
    """The first answer that is true. Fails the test where none comes."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        answer = found()
        if answer:
            return answer
        assert time.monotonic() < end, f"never came: {what}"
        time.sleep(0.1)


class Cluster:
    """Started by its constructor; `stop` ends every process. All its files are in `folder`."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self.folder = folder
        self._programs = programs
        self._processes: list[subprocess.Popen[bytes]] = []
        self.server = f"https://127.0.0.1:{free_port()}"
        self.kubeconfig = self._write_kubeconfig()
        try:
            self._make_keys()
            self._start_all()
        except BaseException:
            self.stop()
            raise

    def _write_kubeconfig(self) -> Path:
        cluster = {"server": self.server, "certificate-authority": str(self.folder / "ca.crt")}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": TOKEN}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin"}}],
            "current-context": "test",
        }
        path = self.folder / "admin.kubeconfig"
        path.write_text(json.dumps(config), encoding="utf-8")
        return path

    def kubectl(self, *arguments: str) -> str:
        """kubectl against it; stdout. Fails the test where it fails."""
        command = [self._programs / "kubectl", *arguments]
        environment = os.environ | {"KUBECONFIG": str(self.kubeconfig)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
        assert done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done.stdout

    def ask(self, method: str, path: str, body: Any = None, kind: str = JSON) -> tuple[int, dict[str, Any]]:
        """One call, much faster than kubectl: the status and the answer."""
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": kind}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.server + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, context=self._tls(), timeout=60) as answer:
                return answer.status, json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            text = error.read()
            try:
                return error.code, json.loads(text)
            except json.JSONDecodeError:
                return error.code, {"message": text.decode(errors="replace")}

    def stop(self) -> None:
        """End every process, the last that started first."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGKILL)
            process.wait()
        self._processes.clear()

    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.folder / "ca.crt"))

    def _make_keys(self) -> None:
        names = "subjectAltName=DNS:localhost,DNS:kubernetes.default.svc,IP:127.0.0.1"
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-x509", "-days", "2"]
        extensions = ["-addext", names, "-addext", "basicConstraints=critical,CA:TRUE"]
        self._openssl("req", *curve, "-subj", "/CN=tests", *extensions, "-keyout", "ca.key", "-out", "ca.crt")
        self._openssl("genrsa", "-out", "accounts.key", "2048")
        self._openssl("rsa", "-in", "accounts.key", "-pubout", "-out", "accounts.pub")
        (self.folder / "tokens.csv").write_text(f'{TOKEN},admin,admin,"system:masters"\n', encoding="ascii")

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

    def _start_all(self) -> None:
        store = f"http://127.0.0.1:{free_port()}"
        peers = f"http://127.0.0.1:{free_port()}"
        self._start("etcd", _flags({
            "data-dir": self.folder / "etcd",
            "unsafe-no-fsync": True,
            "listen-client-urls": store,
            "advertise-client-urls": store,
            "listen-peer-urls": peers,
            "initial-advertise-peer-urls": peers,
            "initial-cluster": f"default={peers}",
        }))  # fmt: skip
        self._start("kube-apiserver", _flags({
            "etcd-servers": store,
            "bind-address": "127.0.0.1",
            "secure-port": self.server.rpartition(":")[2],
            "tls-cert-file": self.folder / "ca.crt",
            "tls-private-key-file": self.folder / "ca.key",
            "token-auth-file": self.folder / "tokens.csv",
            "authorization-mode": "Node,RBAC",
            "allow-privileged": True,
            "service-account-issuer": "https://kubernetes.default.svc",
            "service-account-key-file": self.folder / "accounts.pub",
            "service-account-signing-key-file": self.folder / "accounts.key",
            "service-cluster-ip-range": "198.18.1.0/24",
            "endpoint-reconciler-type": "none",
        }))  # fmt: skip
        self._wait_until_ready()

    def _start(self, program: str, flags: Sequence[str]) -> None:
        with (self.folder / f"{program}.log").open("wb") as log:
            process = subprocess.Popen([self._programs / program, *flags], stdout=log, stderr=log, cwd=self.folder)
        self._processes.append(process)

    def _wait_until_ready(self) -> None:
        end = time.monotonic() + START_SECONDS
        while time.monotonic() < end:
            for process in self._processes:
                assert process.poll() is None, f"{process.args} ended; its log is in {self.folder}"
            try:
                if self.ask("GET", "/readyz")[0] in (200, 201):
                    return
            except OSError:
                pass
            except json.JSONDecodeError:
                return  # it says `ok`
            time.sleep(0.2)
        raise AssertionError(f"the API server is not ready after {START_SECONDS:.0f} s; its log is in {self.folder}")


def _flags(given: Mapping[str, object]) -> list[str]:
    return [f"--{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in given.items()]
