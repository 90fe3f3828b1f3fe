"""A step-level continuous-batching engine, also served over HTTP where there is no GPU."""
