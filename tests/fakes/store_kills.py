"""A real writer over a real store, killed with SIGKILL at random moments: what it acknowledged must be there."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from store_records import SPACE, record

from sagesched_store.apart import StoreApart
from sagesched_store.place import FolderPlace

ROWS = 600
WRITER = """
import sys
from store_records import SPACE, record
from sagesched_store import embedded
from sagesched_store.apart import StoreApart
from sagesched_store.place import FolderPlace
store = StoreApart(FolderPlace(sys.argv[1]), SPACE, int(sys.argv[2]))
number = int(sys.argv[3])
print("open", flush=True)
while True:
    size = 1 + number % 7
    store.append([record(number + k) for k in range(size)])
    number += size
    print(number, flush=True)
"""


def cycle(root: Path, begin: int, rng: random.Random) -> int:
    """One life of a writer: its records from number `begin` on, then SIGKILL; how many it had acknowledged in all.

    Half of the time its store's process dies with it, in the same instant; else that one finds its host gone."""
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(root), str(ROWS), str(begin)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    assert writer.stdout.readline() == "open\n"
    time.sleep(rng.uniform(0.02, 0.6))
    if rng.random() < 0.5:
        os.killpg(writer.pid, signal.SIGKILL)
    else:
        writer.kill()
    said = writer.stdout.read().split("\n")
    writer.wait()
    return max([begin, *map(int, said[:-1])])  # the last line may have been cut


def survive(root: Path, cycles: int, seed: int) -> dict[str, int]:
    """So many lives; after each the store opens, whole, with every acknowledged record that retention lets it keep."""
    rng = random.Random(seed)
    acknowledged = written = 0
    for life in range(cycles):
        acknowledged = cycle(root, written, rng)
        store = StoreApart(FolderPlace(str(root)), SPACE, ROWS)
        held = store.newest(10 * ROWS)
        assert store.health == (0, ""), (life, store.health)
        store.close()
        numbers = [int(one.request, 16) for one in held]
        written = numbers[-1] + 1 if numbers else 0
        assert acknowledged <= written <= acknowledged + 7, (life, acknowledged, written)
        assert numbers == list(range(max(0, written - len(numbers)), written)), life
        assert len(numbers) >= min(written, ROWS), (life, len(numbers))
        assert held == [record(number) for number in numbers], life
    return {"cycles": cycles, "acknowledged": acknowledged}
