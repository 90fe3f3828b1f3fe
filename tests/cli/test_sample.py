"""What `sagesched top` makes of two samples, and its table."""

import io
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from sagesched_cli import cells
from sagesched_cli.exits import UNAVAILABLE, CommandError
from sagesched_cli.sample import Between, Sample, between, quantile, read
from sagesched_cli.top import Watched, look, table

STATUS = {
    "policy": "sagesched",
    "settings_digest": "0123456789ab",
    "draining": False,
    "engine": {"reachable": True, "running": 3, "waiting": 0, "kv_tokens": None},
    "gate": {"waiting": 2, "running": 3, "slots": 4, "oldest_s": 1.25, "predicted_waiting_tokens": 640.0},
    "history_rows": 12,
    "calibration": {
        "m\x1b[31m": {
            "scored": 500,
            "coverage_80": 0.79,
            "levels": {"mixture": {"skill": 0.12}},
            "fallback": "class",
        }
    },
}
PAGE = """
sagesched_requests_total{outcome="answered"} %d
sagesched_requests_total{outcome="left"} 2
sagesched_output_tokens_total %d
sagesched_queue_wait_seconds_bucket{class="a",outcome="granted",le="1.0"} %d
sagesched_queue_wait_seconds_bucket{class="a",outcome="granted",le="2.0"} %d
sagesched_queue_wait_seconds_bucket{class="a",outcome="granted",le="+Inf"} %d
sagesched_queue_wait_seconds_bucket{class="a",outcome="left",le="+Inf"} 99
"""


def sample(at_s: float, answered: int) -> Sample:
    return read(STATUS, PAGE % (answered, 100 * answered, answered, 2 * answered, 2 * answered), at_s)


def test_rates_and_waits_between_two_samples() -> None:
    found = between(sample(10, 5), sample(15, 15))
    assert found == Between(2.0, 200.0, 0.0, pytest.approx(1.0), pytest.approx(1.9))


def test_nothing_is_told_of_one_sample_or_across_a_restart() -> None:
    assert between(None, sample(1, 1)) == Between()
    assert between(sample(1, 9), sample(2, 1)) == Between()
    assert between(sample(1, 9), sample(1, 9)) == Between()


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=50), st.floats(0.01, 1))
def test_a_quantile_is_within_the_bucket_of_the_true_one(values: list[float], q: float) -> None:
    edges = [0.1, 1.0, 10.0, 100.0, math.inf]
    found = quantile({edge: float(sum(value <= edge for value in values)) for edge in edges}, q)
    true = sorted(values)[math.ceil(q * len(values) - 1e-9) - 1]
    upper = next(edge for edge in edges if true <= edge)
    lower = max([0.0, *(edge for edge in edges if edge < upper)])
    assert lower - 1e-9 <= found <= upper + 1e-9


def test_an_empty_histogram_has_no_quantile() -> None:
    assert quantile({}, 0.5) is None
    assert quantile({1.0: 0.0, math.inf: 0.0}, 0.5) is None


def drawn(facts: list[dict[str, object]]) -> str:
    stream = io.StringIO()
    Console(file=stream, width=120).print(table(facts))
    return stream.getvalue()


def test_the_table_tells_fallbacks_and_obeys_no_name() -> None:
    seen = iter([sample(0, 0), sample(10, 50)])
    watched = Watched("http://a:1", 1.0, lambda *_: next(seen))
    watched.look()
    watched.look()
    text = drawn([watched.facts(), {"url": "http://b:2", "reachable": False, "trouble": "gone"}])
    for told in ("5.00", "500", "3 of 4 slots", "79 %", "0.12", "0123456789ab", "m?[31m", "not reachable"):
        assert told in text
    assert "\x1b" not in text


def test_one_sidecar_that_is_gone_does_not_hide_the_others() -> None:
    def gone(url: str, *_: float) -> Sample:
        raise CommandError(f"no sidecar answers at {url}", UNAVAILABLE)

    here, away = Watched("http://a:1", 1.0, lambda *_: sample(0, 0)), Watched("http://b:2", 1.0, gone)
    look([here, away])
    assert (here.facts()["reachable"], away.facts()["reachable"]) == (True, False)
    with pytest.raises(CommandError, match="b:2"):
        look([away])


def test_samples_of_the_last_minute_are_kept() -> None:
    times = iter(range(0, 1000, 10))
    watched = Watched("http://a:1", 1.0, lambda _, __, now_s: sample(now_s, 1), clock=lambda: float(next(times)))
    for _ in range(100):
        watched.look()
    assert [watched._samples[0].at_s, watched._samples[-1].at_s] == [930.0, 990.0]


@given(st.text(max_size=100), st.integers(1, 50))
def test_what_clients_named_is_one_harmless_line(text: str, limit: int) -> None:
    shown = cells.printable(text, limit)
    assert len(shown) <= limit
    assert shown.isprintable()
