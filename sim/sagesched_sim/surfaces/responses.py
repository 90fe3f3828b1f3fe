"""/v1/responses, as vLLM 0.32 writes it for a model without reasoning and tools. Nothing is stored."""

import uuid
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from sagesched_sim.prompt import chat_template, content_text, count_tokens
from sagesched_sim.surfaces.ask import Ask, BadRequest, Prompt, Sampling, Stamp, Text, openai_error
from sagesched_sim.surfaces.responses_writer import ResponsesWriter

_REPEATED = ("instructions", "metadata", "temperature", "top_p", "user", "service_tier", "truncation", "tool_choice")


class _Body(Sampling, frozen=True, kw_only=True):
    input: str | list[Any]
    instructions: str | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    metadata: dict[str, str] | None = None
    temperature: float | None = None
    top_p: float | None = None
    user: str | None = None
    service_tier: str | None = None
    truncation: str | None = None
    tool_choice: Any = None
    background: bool | None = False
    previous_response_id: str | None = None
    request_id: str | None = None

    def turns(self) -> list[tuple[str, str]]:
        """(role, text) pairs, the instructions first where there are some."""
        if isinstance(self.input, str):
            said = [("user", self.input)]
        else:
            items = [item for item in self.input if isinstance(item, dict) and "content" in item]
            said = [(str(item.get("role", "user")), content_text(item["content"])) for item in items]
        return said if self.instructions is None else [("system", self.instructions), *said]


class ResponsesSurface:
    """Responses."""

    path = "/v1/responses"

    def __init__(self) -> None:
        self._decoder = msgspec.json.Decoder(_Body)

    def read(self, body: bytes) -> Ask:
        """Decodes a body. Raises BadRequest or msgspec.DecodeError."""
        asked = self._decoder.decode(body)
        if asked.background:
            raise BadRequest(
                "This vLLM engine does not support `store=True` and therefore does not support the background mode.",
                kind="invalid_request_error",
                param="background",
            )
        if asked.previous_response_id is not None:
            raise BadRequest(
                f"Response with id '{asked.previous_response_id}' not found.",
                status=404,
                kind="invalid_request_error",
                param="response_id",
            )
        turns = asked.turns()
        echo = {name: value for name in _REPEATED if (value := getattr(asked, name)) is not None}
        return Ask(
            model=asked.model,
            prompts=[Prompt(count_tokens(chat_template(turns)), "\n".join(said for _, said in turns))],
            max_tokens=asked.max_output_tokens,
            min_tokens=asked.min_tokens,
            ignore_eos=asked.ignore_eos,
            stream=bool(asked.stream),
            priority=asked.priority,
            scripted_tokens=asked.scripted_tokens,
            echo=echo | {"id": asked.request_id or f"resp_{uuid.uuid4().hex}"},
        )

    def writer(self, ask: Ask, stamp: Stamp, text: Text) -> ResponsesWriter:
        """A writer for one answer. X-Request-Id has no say in its id: as in vLLM, only the body's `request_id` has."""
        return ResponsesWriter(ask, stamp, text)

    def error(self, message: str, kind: str, status: int, param: str | None) -> bytes:
        """The JSON of an error."""
        return openai_error(message, kind, status, param)
