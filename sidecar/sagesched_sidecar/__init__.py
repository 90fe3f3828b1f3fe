"""The process beside each engine: an OpenAI-compatible proxy that orders what waits."""
