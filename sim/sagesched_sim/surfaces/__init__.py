"""The four HTTP surfaces in vLLM's shapes: bodies in, bytes out. Pure; nothing here waits or knows the engine."""
