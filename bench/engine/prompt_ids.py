"""Token ids of prompts as the engine's chat endpoint makes them; run by the engine's own Python.

`python prompt_ids.py MODEL_FOLDER < prompts.json > ids.json`: a list of strings in, a list of lists of ids out.
"""

import json
import sys

from transformers import AutoTokenizer


def main(model: str) -> None:
    """Read, template, tokenize, write."""
    tokenizer = AutoTokenizer.from_pretrained(model)
    ids = []
    for prompt in json.load(sys.stdin):
        said = [{"role": "user", "content": prompt}]
        text = tokenizer.apply_chat_template(said, tokenize=False, add_generation_prompt=True)
        ids.append(tokenizer(text, add_special_tokens=False)["input_ids"])
    json.dump(ids, sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1])
