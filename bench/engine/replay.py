"""A vLLM logits processor that gives each answer its recorded length: no end before it, nothing but the end at it.

Loaded in the engine's process alone (`--logits-processors bench.engine.replay:Replay`). The model runs as ever: only
the choice of the token that ends an answer is taken from it.
"""

import json
import os
from pathlib import Path
from typing import Any

import torch
from bench.engine.lengths_file import FILE_VARIABLE, NONCE_VARIABLE, key
from vllm.v1.sample.logits_processor import AdapterLogitsProcessor

NEVER = float("-inf")


class Replay(AdapterLogitsProcessor):  # type: ignore[misc]  # the engine's Python has vllm, the linter's has not
    """See the module."""

    def __init__(self, vllm_config: Any, device: Any, is_pin_memory: bool) -> None:
        super().__init__(vllm_config, device, is_pin_memory)
        self._nonce = os.environ[NONCE_VARIABLE]
        lengths = json.loads(Path(os.environ[FILE_VARIABLE]).read_text(encoding="utf-8"))
        self._lengths: dict[str, int] = lengths
        given = vllm_config.model_config.try_get_generation_config().get("eos_token_id")
        given = vllm_config.model_config.hf_config.eos_token_id if given is None else given
        self._ends: list[int] = given if isinstance(given, list) else [given]

    def is_argmax_invariant(self) -> bool:
        """It changes what greedy sampling takes."""
        return False

    def new_req_logits_processor(self, params: Any) -> "Answer":
        """One for each request. A prompt without a recorded length ends as the model likes."""
        return Answer(self)

    def length_of(self, prompt_ids: list[int]) -> int | None:
        """The recorded output tokens, the end token included."""
        return self._lengths.get(key(self._nonce, prompt_ids))

    @property
    def ends(self) -> list[int]:
        """The tokens that end an answer."""
        return self._ends


class Answer:
    """One request's answer."""

    def __init__(self, replay: Replay) -> None:
        self._replay = replay
        self._known = False
        self._length: int | None = None

    def __call__(self, prompt_ids: list[int], output_ids: list[int], logits: Any) -> Any:
        """The logits of the next token."""
        if not self._known:
            self._known, self._length = True, self._replay.length_of(prompt_ids)
        if self._length is None:
            return logits
        ends = self._replay.ends
        if len(output_ids) >= self._length - 1:
            only = torch.full_like(logits, NEVER)
            only[ends[0]] = 0.0
            return only
        logits[ends] = NEVER
        return logits
