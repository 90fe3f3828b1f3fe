"""Traffic: prompts, true lengths and arrivals."""
