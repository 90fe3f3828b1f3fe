"""Order alone, in a real engine: `python -m bench.engine` (docs/results-engine.md)."""
