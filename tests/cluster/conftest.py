"""One control plane for the whole tier; each test has a namespace of its own."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import real_cluster
import yaml
from real_cluster import ROOT, Cluster, until

_numbers = itertools.count()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Everything here is of the tier, runs only where it is asked for, and has the cluster's start in its time."""
    here = Path(__file__).parent
    ours = [item for item in items if here in item.path.parents]
    if "cluster" not in config.option.markexpr:
        config.hook.pytest_deselected(items=ours)
        items[:] = [item for item in items if here not in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.cluster)
        item.add_marker(pytest.mark.timeout(400))


def installed(cluster: Cluster) -> None:
    """The CRD, once the API server serves it."""
    [file] = (ROOT / "crds").glob("*.yaml")
    crd = yaml.safe_load(file.read_text("utf-8"))
    status, answer = cluster.ask("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    assert status == 201, answer
    where = f"/apis/{crd['spec']['group']}/{crd['spec']['versions'][0]['name']}/{crd['spec']['names']['plural']}"
    until(lambda: cluster.ask("GET", where)[0] == 200, "the CRD")


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A real API server with the CRD."""
    found = real_cluster.made_by("cluster_binaries.py")
    if isinstance(found, str):
        pytest.skip(found)
    running = Cluster(found, tmp_path_factory.mktemp("cluster"))
    try:
        installed(running)
        yield running
    finally:
        running.stop()


@pytest.fixture
def namespace(cluster: Cluster) -> str:
    """A new namespace, in which the restricted pod security standard is enforced."""
    name = f"test-{next(_numbers)}"
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    status, answer = cluster.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    assert status == 201, answer
    return name
