"""What is read of a request as the engine has it."""

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from model_scheduler import ModelRequest

from sagesched.engine_priority import class_priority, class_range
from sagesched.hint import Hint, encode
from sagesched.settings import Settings, decode
from sagesched_vllm.arrivals import read_request

NOW_S = 5_000.0
values = st.recursive(st.none() | st.integers() | st.floats() | st.text(max_size=5), lambda x: st.lists(x, max_size=3))


def test_a_hint_gives_class_weight_arrival_and_lengths_under_the_cap() -> None:
    told = Hint(
        lengths=(10.0, 900.0), weights=(1.0, 1.0), class_name="batch", priority=4, weight=2.5, arrival_s=4_990.0
    )
    arrival = read_request(ModelRequest("r", 5, max_tokens=100, extra_args=encode(told)), Settings(), NOW_S)
    request = arrival.request
    assert (request.class_name, request.priority, request.weight, request.arrival_s) == ("batch", 4, 2.5, 4_990.0)
    assert arrival.told is not None
    assert arrival.told.tokens.tolist() == [10.0, 100.0]
    assert arrival.result == "used"


def test_without_a_hint_the_default_class_of_the_settings_counts() -> None:
    settings = decode({"scheduling": {"classes": [{"name": "default", "priority": 2, "weight": 3}]}})
    arrival = read_request(ModelRequest("r", 5, arrival_time=4_000.0), settings, NOW_S)
    assert (arrival.request.priority, arrival.request.weight) == (2, 3.0)
    assert (arrival.result, arrival.told, arrival.request.arrival_s) == ("absent", None, 4_400.0)


@given(st.integers(-1000, 1000), st.data())
def test_any_number_of_a_class_is_that_class(priority: int, data: st.DataObject) -> None:
    first, last = class_range(priority)
    number = data.draw(st.integers(first, last).filter(lambda number: abs(number) > 1000))
    read = read_request(ModelRequest("r", 5, priority=number), Settings(), NOW_S).request.priority
    assert read == priority
    assert class_priority(read) == class_priority(priority)


@given(st.integers(-1000, 1000))
def test_a_small_number_of_a_client_s_own_is_a_class(number: int) -> None:
    """As with vLLM's own policy `priority`, where no sidecar is before the engine."""
    assert read_request(ModelRequest("r", 5, priority=number), Settings(), NOW_S).request.priority == number


def test_a_lora_adapter_is_a_model_of_its_own() -> None:
    lora = SimpleNamespace(lora_name="poems")
    assert read_request(ModelRequest("r", 5, lora_request=lora), Settings(), NOW_S).request.model == "poems"
    pooling: Any = ModelRequest("r", 5)
    pooling.__class__ = type("Pooling", (ModelRequest,), {"sampling_params": None})
    assert read_request(pooling, Settings(), NOW_S).result == "absent"


@given(st.dictionaries(st.sampled_from([*encode(Hint(lengths=(1.0,), weights=(1.0,))), "own"]), values))
def test_whatever_a_client_puts_there_is_a_hint_or_none(extra: dict[str, Any]) -> None:
    arrival = read_request(ModelRequest("r", 5, extra_args=extra), Settings(), NOW_S)
    assert arrival.result in ("used", "absent", "bad")
    assert (arrival.told is None) == (arrival.result != "used")
    assert NOW_S - Settings().queue.max_age_seconds <= arrival.request.arrival_s <= NOW_S
