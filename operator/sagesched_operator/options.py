"""The operator's command line, checked before anything is watched."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from sagesched_operator.pods import Images

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
EXIT_USAGE = 64


class Options(NamedTuple):
    """All that the process was told."""

    namespaces: tuple[str, ...]
    """Watched, that of the defaults among them; all where there are none."""
    defaults_namespace: str
    defaults_name: str
    images: Images
    health_port: int
    workers: int
    kubeconfig: Path | None


def parse(arguments: Sequence[str] | None = None) -> Options:
    """The options. Ends with 64 where one is wrong."""
    parser = argparse.ArgumentParser(prog="sagesched_operator", description=__doc__)
    parser.add_argument(
        "--namespace", action="append", default=[], help="watch this one; may be repeated (default: all)"
    )
    parser.add_argument(
        "--defaults", default="sagesched-defaults", help="the ConfigMap of defaults, as [NAMESPACE/]NAME"
    )
    parser.add_argument("--sidecar-image", required=True, help="where a policy names none")
    parser.add_argument("--simulator-image", required=True, help="where a policy names none")
    parser.add_argument("--vllm-image", required=True, help="where a policy names none")
    parser.add_argument("--health-port", type=int, default=8081, help="/healthz and /metrics (default: %(default)s)")
    parser.add_argument("--workers", type=int, default=8, help="policies served at once (default: %(default)s)")
    parser.add_argument("--kubeconfig", type=Path, help="outside a cluster (default: $KUBECONFIG)")
    given = parser.parse_args(arguments)
    namespace, _, name = given.defaults.rpartition("/")
    home = namespace or _own_namespace()
    if given.workers < 1:
        parser.exit(EXIT_USAGE, f"{parser.prog}: --workers: must be at least 1\n")
    kubeconfig = given.kubeconfig or (Path(os.environ["KUBECONFIG"]) if os.environ.get("KUBECONFIG") else None)
    return Options(
        namespaces=tuple(sorted({*given.namespace, home})) if given.namespace else (),
        defaults_namespace=home,
        defaults_name=name,
        images=Images(given.sidecar_image, given.vllm_image, given.simulator_image),
        health_port=given.health_port,
        workers=given.workers,
        kubeconfig=kubeconfig,
    )


def _own_namespace() -> str:
    try:
        return (SERVICE_ACCOUNT / "namespace").read_text(encoding="ascii").strip()
    except OSError:
        return "default"
