"""One exchange of a workload: what a client sends and how long the answer will be."""

import msgspec


class Exchange(msgspec.Struct, frozen=True):
    """A prompt and its true answer length.

    `output_tokens` goes to the simulated engine and to the report, never to the scheduler before the answer is over.
    """

    prompt: str
    output_tokens: int
    topic: int = -1
    """The generator's topic, for tests; -1 where there is none. It is never sent to anybody."""


class WorkloadError(ValueError):
    """Traffic that cannot be read or made; the message says where and what to do."""
