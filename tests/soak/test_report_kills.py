"""Fifty kill -9 of a sidecar while clients report over gRPC: every record whose Report returned is in the store."""

import pytest
from report_kills import survive

pytestmark = [pytest.mark.soak, pytest.mark.timeout(600)]


async def test_every_record_whose_report_returned_is_there_after_fifty_kills(tmp_path):
    done = await survive(tmp_path, lives=50, seed=3)
    print(done)
    assert done["acknowledged"] > 1000
