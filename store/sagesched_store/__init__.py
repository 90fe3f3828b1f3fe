"""The durable history of finished requests behind one protocol. Never prompt text."""
