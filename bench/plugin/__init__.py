"""What our scheduler adds to a step of vLLM's: `python -m bench.plugin` (docs/performance.md)."""
