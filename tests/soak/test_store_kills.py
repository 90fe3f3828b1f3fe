"""Fifty kill -9 during writes: the store opens each time, and every record that was acknowledged is there."""

import pytest
from store_kills import survive

pytestmark = [pytest.mark.soak, pytest.mark.timeout(300)]


def test_every_acknowledged_record_is_there_after_fifty_kills(tmp_path):
    done = survive(tmp_path, cycles=50, seed=2)
    print(done)
    assert done["acknowledged"] > 1000
