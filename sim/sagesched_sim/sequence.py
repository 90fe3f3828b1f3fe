"""What the engine is asked for, and how far it has come with it."""

import msgspec


class EngineRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One sequence to generate. `output_tokens` is the true length: only the engine may hold it."""

    id: str
    prompt_tokens: int
    output_tokens: int
    """Where the model would stop by itself."""
    max_tokens: int
    """The client's cap; the sequence ends with `length` where this is below the true length."""
    priority: int = 0
    """Lower goes first under the policy `priority`; ignored under `fcfs`."""
    arrival_s: float = 0.0
    """Breaks ties of priority."""

    def __post_init__(self) -> None:
        for field in ("prompt_tokens", "output_tokens", "max_tokens"):
            if getattr(self, field) < 1:
                raise ValueError(f"{field}: {getattr(self, field)} given for request {self.id}; it must be at least 1")


class Sequence:
    """A request inside the engine. Mutable; the engine alone writes it."""

    __slots__ = (
        "blocks",
        "chunk_tokens",
        "computed_tokens",
        "ended",
        "generated_tokens",
        "id",
        "last_token",
        "preemptions",
        "request",
        "total_tokens",
    )

    def __init__(self, request: EngineRequest, max_model_len: int) -> None:
        self.request = request
        self.id = request.id
        self.total_tokens = request.prompt_tokens
        """Prompt and generated tokens: what the KV cache must hold before the next token can be made."""
        self.computed_tokens = 0
        """Of these, those that the KV cache holds."""
        self.generated_tokens = 0
        self.chunk_tokens = 0
        """Tokens to compute in the step under way."""
        self.blocks = 0
        self.preemptions = 0
        self.ended = False
        room = max_model_len - request.prompt_tokens
        self.last_token = min(request.output_tokens, request.max_tokens, room)
        """Generated tokens at which the sequence ends."""

    @property
    def finish_reason(self) -> str:
        """`stop` where the model stopped by itself, `length` where a cap cut it. A tie is a stop, as in vLLM."""
        return "stop" if self.last_token == self.request.output_tokens else "length"
