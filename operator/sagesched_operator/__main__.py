"""`python -m sagesched_operator`: watch policies, and make what they ask for."""

import asyncio
import logging
import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from random import Random

import kopf
from pythonjsonlogger.json import JsonFormatter

from sagesched_operator.defaults import Defaults
from sagesched_operator.handlers import register
from sagesched_operator.health import Health, serving
from sagesched_operator.kube import Connection, Kube, KubeError
from sagesched_operator.options import SERVICE_ACCOUNT, Options, parse
from sagesched_operator.reconcile import Reconciler
from sagesched_operator.sidecars import Sidecars
from sagesched_operator.work import Work


def main() -> int:
    """Run until SIGTERM; the exit status."""
    options = parse()
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    asyncio.run(run(options))
    return 0


async def run(options: Options) -> None:
    """Everything, until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    connection = connection_of(log_in(options.kubeconfig), options.kubeconfig)
    health = Health()
    defaults = Defaults(options.defaults_namespace, options.defaults_name)
    async with Kube(connection) as kube, Sidecars() as sidecars, serving(health, kube, options.health_port):
        reconciler = Reconciler(kube, sidecars, options.images, defaults.now, _now)
        work = Work(reconciler.reconcile, Random())  # noqa: S311 - spreads retries
        await first(kube, defaults, options)
        registry = kopf.OperatorRegistry()
        kopf.on.login(registry=registry)(lambda **_: log_in(options.kubeconfig))
        register(registry, work.ask, defaults, health.heard)
        serve = asyncio.create_task(work.run(options.workers))
        try:
            await kopf.operator(
                registry=registry,
                clusterwide=not options.namespaces,
                namespaces=options.namespaces,
                standalone=True,
                stop_flag=stop,
            )
        finally:
            serve.cancel()


async def first(kube: Kube, defaults: Defaults, options: Options) -> None:
    """The defaults before any policy is looked at: without them each would have other settings for a moment."""
    while True:
        try:
            defaults.take(await kube.get("ConfigMap", options.defaults_namespace, options.defaults_name))
        except KubeError as error:
            logging.getLogger(__name__).warning("the cluster cannot be asked yet", extra={"problem": str(error)})
            await asyncio.sleep(2)
        else:
            return


def log_in(kubeconfig: Path | None) -> kopf.ConnectionInfo:
    """By the file outside a cluster, by the pod's account inside."""
    settings = kopf.OperatorSettings()
    if kubeconfig is not None:
        os.environ["KUBECONFIG"] = str(kubeconfig)
        info = kopf.login_with_kubeconfig(settings=settings)
    else:
        info = kopf.login_with_service_account(settings=settings)
    if info is None:
        raise SystemExit("sagesched_operator: neither --kubeconfig nor a pod's account says where the cluster is")
    return info


def connection_of(info: kopf.ConnectionInfo, kubeconfig: Path | None) -> Connection:
    """The same for our own calls. A pod's token changes, so it is read each time."""
    fixed, file = info.token, SERVICE_ACCOUNT / "token"
    return Connection(
        info.server, info.as_ssl_context(), lambda: fixed if kubeconfig else file.read_text("ascii").strip()
    )


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


if __name__ == "__main__":
    sys.exit(main())
