"""Any calls to an embedded store, closed, killed and opened again in between: it agrees with the one in memory."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from store_records import SPACE, record

from sagesched_store.embedded import EmbeddedStore
from sagesched_store.memory import MemoryStore

ROWS = 20
tenants = st.sampled_from(["", "a", "b"])


class AnyCalls(RuleBasedStateMachine):
    """Times are distinct, as the order of equal ones is not said."""

    def __init__(self):
        super().__init__()
        shm = Path("/dev/shm")  # a sync takes no time there, and this is not about what a disk does
        self.root = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() else None))
        self.folder = self.root / "0"
        self.generation = 0
        self.model = MemoryStore(SPACE, ROWS)
        self.store = self.open()

    def open(self):
        return EmbeddedStore(self.folder, SPACE, ROWS, checkpoint_bytes=1500, patience_s=0.0)

    @rule(numbers=st.lists(st.integers(0, 60), unique=True, max_size=12), tenant=tenants)
    def append(self, numbers, tenant):
        batch = [record(3 * number + len(tenant.replace("b", "bb")), tenant) for number in numbers]
        self.store.append(batch)
        self.model.append(batch)

    @rule(tenant=tenants)
    def delete(self, tenant):
        assert self.store.delete_tenant(tenant) == self.model.delete_tenant(tenant)

    @rule()
    def close_and_open(self):
        self.store.close()
        self.store = self.open()

    @rule()
    def kill_and_open(self):
        """What a killed process leaves is what is in its files now: a copy of them is opened."""
        self.generation += 1
        copied = self.root / str(self.generation)
        shutil.copytree(self.folder, copied)
        self.store.close()
        shutil.rmtree(self.folder)
        self.folder = copied
        self.store = self.open()

    @invariant()
    def agree(self):
        assert self.store.newest(ROWS) == self.model.newest(ROWS)
        assert [self.store.count(tenant) for tenant in (None, "", "a", "b")] == [
            self.model.count(tenant) for tenant in (None, "", "a", "b")
        ]

    def teardown(self):
        self.store.close()
        shutil.rmtree(self.root)


TestAnyCalls = AnyCalls.TestCase
TestAnyCalls.settings = settings(max_examples=5, stateful_step_count=12, deadline=None)
