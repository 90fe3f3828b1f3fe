"""Traffic by name, as the command line gives it: `topics`, `sharegpt`, a JSONL file, or ShareGPT's original JSON."""

from pathlib import Path

from . import jsonl, sharegpt
from .exchange import WorkloadError
from .traffic import Traffic, shuffled, synthetic


def load(data: str, seed: int, *, history: int, requests: int) -> Traffic:
    """The traffic of a seed. Raises WorkloadError with what is wrong and where.

    A JSONL file is a log: its order is time's, whatever the seed. Topics and ShareGPT have no time of their own:
    the seed makes it.
    """
    if data == "topics":
        return synthetic(seed, history=history, requests=requests)
    if data == "sharegpt":
        return _sharegpt(sharegpt.find(), seed, history=history, requests=requests)
    if data.endswith(".json"):
        return _sharegpt(Path(data), seed, history=history, requests=requests)
    if data.endswith(".jsonl"):
        return Traffic.split(jsonl.read(Path(data)), history=history, requests=requests)
    raise WorkloadError(f"--data {data}: must be topics, sharegpt, a .jsonl file or ShareGPT's .json file")


def _sharegpt(path: Path, seed: int, *, history: int, requests: int) -> Traffic:
    with sharegpt.open_text(path) as stream:
        exchanges = tuple(sharegpt.exchanges(stream))
    return Traffic.split(shuffled(exchanges, seed), history=history, requests=requests)
