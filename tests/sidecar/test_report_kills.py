"""kill -9 of a sidecar while clients report; the soak does it fifty times."""

from report_kills import survive


async def test_every_record_whose_report_returned_is_there_after_three_kills(tmp_path):
    assert (await survive(tmp_path, lives=3, seed=4))["acknowledged"] > 0
