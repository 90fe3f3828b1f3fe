"""What an engine's own argument list says of it: vLLM's flags, as its parser reads them."""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

PLUGIN_PACKAGE = "sagesched_vllm"
"""The package of the scheduler that goes inside the engine."""

_LACKING = "engine.arguments do not have it"
_FLAG = re.compile(r"--?[A-Za-z]")


class EngineFacts(NamedTuple):
    """Read from the arguments. None: they do not say."""

    scheduling_policy: str | None = None
    scheduler_class: str | None = None
    max_num_seqs: int | None = None
    served_models: tuple[str, ...] = ()
    """Names of the one model: a request may use any of them."""
    complete: bool = False
    """Whether what is not among them has the engine's default: there are some, and none names a file of more."""


def read_arguments(arguments: Sequence[str]) -> EngineFacts:
    """The facts in an argument list, with or without `vllm serve` or `python -m ...` before it. Never raises: what is
    not understood is not known."""
    policy = scheduler = None
    seqs: int | None = None
    names: tuple[str, ...] = ()
    model: str | None = None
    complete = bool(arguments)
    for flag, values in _flags(arguments):
        first = values[0] if values else None
        if flag == "scheduling-policy":
            policy = first
        elif flag == "scheduler-cls":
            scheduler = first
        elif flag == "max-num-seqs":
            seqs = int(first) if first is not None and first.isdecimal() and int(first) > 0 else None
        elif flag == "served-model-name":
            names = tuple(values)
        elif flag == "model":
            model = first or model
        elif flag == "config":
            complete = False
    return EngineFacts(policy, scheduler, seqs, names or ((model,) if model else ()), complete)


def _flags(arguments: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Each flag with its values, `--a=b` and `--a b` alike, `_` for `-` allowed; `vllm serve MODEL` reads as --model.

    A flag's values are all words up to the next flag; whoever takes one takes the first.
    """
    words = list(arguments)
    if "serve" in words:
        words = words[words.index("serve") + 1 :]
        if words and not words[0].startswith("-"):
            yield "model", [words[0]]
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if not _FLAG.match(word):
            continue
        name, equals, value = word.lstrip("-").partition("=")
        values = [value] if equals else []
        while not equals and at < len(words) and not _FLAG.match(words[at]):
            values.append(words[at])
            at += 1
        yield name.replace("_", "-"), values


def problem_of_mode(mode: str, facts: EngineFacts) -> str | None:
    """Why the engine cannot do this mode, so far as its arguments say; None where it can, or may."""
    if mode == "priority" and (facts.scheduling_policy or ("fcfs" if facts.complete else "priority")) != "priority":
        return f"priority needs an engine started with --scheduling-policy priority; {_LACKING}"
    if mode == "engine":
        scheduler = facts.scheduler_class or ("" if facts.complete else PLUGIN_PACKAGE + ".")
        if not scheduler.startswith(PLUGIN_PACKAGE + "."):
            return f"engine needs an engine started with --scheduler-cls {PLUGIN_PACKAGE}...; {_LACKING}"
    return None


def proves_mode(mode: str, facts: EngineFacts) -> bool:
    """Whether the arguments show that the engine can do this mode."""
    if mode == "priority":
        return facts.scheduling_policy == "priority"
    if mode == "engine":
        return (facts.scheduler_class or "").startswith(PLUGIN_PACKAGE + ".")
    return True
