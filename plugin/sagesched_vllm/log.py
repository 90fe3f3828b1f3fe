"""Where the scheduler's lines go: below vLLM's own logger, which is set up to be seen."""

LOGGER = "vllm.sagesched"
