"""A model's folder without weights: what vLLM's configuration and a grammar's compiler read, and nothing to run."""

import json
from pathlib import Path

from tokenizers import Tokenizer, decoders, models
from transformers import PreTrainedTokenizerFast

VOCABULARY = 260
"""The 256 bytes, and four that are no text."""

CONTEXT_TOKENS = 512
CONFIG = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 64,
    "num_hidden_layers": 1,
    "num_attention_heads": 1,
    "num_key_value_heads": 1,
    "max_position_embeddings": CONTEXT_TOKENS,
    "bos_token_id": 256,
    "eos_token_id": 257,
    "pad_token_id": 258,
    "torch_dtype": "float32",
}


def write_model_folder(folder: Path) -> Path:
    """One of a model that reads bytes: token i is byte i."""
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    names = [f"<0x{byte:02X}>" for byte in range(256)] + ["<s>", "</s>", "<pad>", "<unk>"]
    vocabulary = {name: token for token, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], byte_fallback=True, unk_token="<unk>"))
    tokenizer.decoder = decoders.ByteFallback()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
    )
    fast.save_pretrained(str(folder))
    return folder
