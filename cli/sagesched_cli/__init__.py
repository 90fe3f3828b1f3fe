"""The `sagesched` command."""
