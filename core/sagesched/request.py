"""What a policy may know about a request. There is no true output length here, and no field could hold one."""

import msgspec


class Features(msgspec.Struct, frozen=True, kw_only=True):
    """What changes the output length while the prompt's embedding stays nearly the same (docs/method.md section 1)."""

    asked_number: float | None = None
    """The number of words, items or paragraphs asked for, in approximate tokens; None when none is asked for."""
    max_tokens: int | None = None
    """The request's own cap on output tokens."""
    choices: int = 1
    """`n`: completions asked for; each is about one output long."""
    effort: str = ""
    """Reasoning effort, as the client named it; empty when it did not."""
    tools: bool = False
    """Whether tools may be called."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request as the scheduler sees it at arrival. Times are in the host's own seconds."""

    id: str
    model: str = ""
    tenant: str = ""
    prompt_tokens: int = 0
    """`I`: prompt tokens, estimated where the host cannot count them."""
    uncached_tokens: int | None = None
    """Prompt tokens that no prefix cache holds; None where the host does not know (then all of them)."""
    arrival_s: float = 0.0
    class_name: str = "default"
    """Of its priority class; for those who count."""
    priority: int = 0
    """Priority class: lower goes first, whatever the key."""
    weight: float = 1.0
    """Weight inside the class: a weight of 2 halves the cost in the order."""
    features: Features = Features()


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a request ended, in tokens of one choice."""

    output_tokens: int
    prompt_tokens: int | None = None
    """The engine's own count, where it gave one."""
    cached_tokens: int | None = None
    """Of the prompt's tokens, those that a prefix cache held, where the engine said so."""
    censored: bool = False
    """True when the output was cut (finish_reason `length`, abort, disconnect): the true length is at least this."""
