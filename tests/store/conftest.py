"""Every implementation of the protocol, opened in a folder of the test's own."""

import shutil
import tempfile
from pathlib import Path

import pytest
from store_records import SPACE

from sagesched_store.apart import StoreApart
from sagesched_store.embedded import EmbeddedStore
from sagesched_store.memory import MemoryStore
from sagesched_store.place import FolderPlace

KINDS = {
    "memory": lambda root, space, rows: MemoryStore(space, rows),
    "embedded": EmbeddedStore,
    "apart": lambda root, space, rows: StoreApart(FolderPlace(str(root)), space, rows),
}


@pytest.fixture
def quick_path():
    """A folder where a sync takes no time, for tests that are not about what a disk does."""
    shm = Path("/dev/shm")
    made = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
    yield made
    shutil.rmtree(made)


@pytest.fixture(params=[*KINDS, pytest.param("server", marks=pytest.mark.qdrant)])
def open_store(request, tmp_path):
    """`open_store(space=..., rows=...)`; whatever it opened is closed at the end."""
    opened = []

    def begin(space=SPACE, rows=100, root: Path = tmp_path):
        if request.param == "server":
            opened.append(request.getfixturevalue("collections").store(space, rows))
        else:
            opened.append(KINDS[request.param](root, space, rows))
        return opened[-1]

    begin.lasts = request.param != "memory"
    yield begin
    for store in opened:
        store.close()
