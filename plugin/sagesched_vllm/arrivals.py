"""From a request as vLLM has it to one as the ranking takes it; what the sidecar told of it comes along."""

from typing import Any, Literal, NamedTuple, Protocol

from msgspec import structs

from sagesched.engine_priority import CLASS_BITS
from sagesched.hint import BadHint, Hint, decode
from sagesched.lengths import LengthDistribution
from sagesched.request import Features, Request
from sagesched.settings import DEFAULT_CLASS, PriorityClass, Settings, class_of

MAX_CLASS = 1000
"""Of the settings' bounds."""

Result = Literal["used", "absent", "bad"]


class EngineRequest(Protocol):
    """What is read of vLLM's Request."""

    request_id: str
    num_prompt_tokens: int
    num_computed_tokens: int
    max_tokens: int
    priority: int
    arrival_time: float
    sampling_params: Any
    lora_request: Any
    status: Any

    @property
    def num_output_tokens(self) -> int:
        """Generated so far."""

    @property
    def num_tokens(self) -> int:
        """Prompt and output."""

    def is_finished(self) -> bool:
        """Whether the engine has done with it."""


class Arrival(NamedTuple):
    """One request for the ranking."""

    request: Request
    told: LengthDistribution | None
    """The sidecar's prediction."""
    result: Result
    problem: str | None = None
    """Why a hint was of no use."""


def read_request(engine_request: EngineRequest, settings: Settings, now_s: float) -> Arrival:
    """The request and its prediction. A hint that is of no use costs the prediction and nothing else."""
    extra = getattr(engine_request.sampling_params, "extra_args", None)
    hint = decode(extra)
    if isinstance(hint, Hint):
        arrival_s = _bounded(hint.arrival_s or engine_request.arrival_time, settings, now_s)
        place = PriorityClass(name="told", priority=hint.priority, weight=hint.weight)
        request = _request(engine_request, hint.class_name, place, arrival_s)
        return Arrival(request, hint.distribution(engine_request.max_tokens), "used")
    plain = class_of(settings.scheduling, DEFAULT_CLASS.name)
    told = _told_priority(engine_request)
    place = structs.replace(plain, priority=told) if told else plain
    arrival_s = _bounded(engine_request.arrival_time, settings, now_s)
    request = _request(engine_request, plain.name, place, arrival_s)
    problem = hint.reason if isinstance(hint, BadHint) else None
    return Arrival(request, None, "bad" if problem else "absent", problem)


def _request(engine_request: EngineRequest, class_name: str, place: PriorityClass, arrival_s: float) -> Request:
    lora = engine_request.lora_request
    return Request(
        id=engine_request.request_id,
        model="" if lora is None else lora.lora_name,
        prompt_tokens=engine_request.num_prompt_tokens,
        arrival_s=arrival_s,
        class_name=class_name,
        priority=place.priority,
        weight=place.weight,
        features=Features(max_tokens=engine_request.max_tokens),
    )


def _bounded(arrival_s: float, settings: Settings, now_s: float) -> float:
    """An arrival that may be: not later than now, nor so long ago that the request would have been refused."""
    return min(now_s, max(arrival_s, now_s - settings.queue.max_age_seconds))


def _told_priority(engine_request: EngineRequest) -> int:
    """The priority class in the number that the sidecar sends where no hint can go; a small number is one itself."""
    number = engine_request.priority
    if abs(number) <= MAX_CLASS:
        return number
    return max(-MAX_CLASS, min(MAX_CLASS, (number + (1 << (CLASS_BITS - 1))) >> CLASS_BITS))
