"""What stops a demo."""


class DemoError(Exception):
    """A run that cannot be trusted; the message says what happened and where to look."""
