"""Logs as JSON lines on stderr. No prompt text: nothing that came in a body is ever an argument of a log call."""

import logging
import sys

from pythonjsonlogger.json import JsonFormatter

LOGGED_MODEL_CHARACTERS = 128
LEVELS = ("debug", "info", "warning", "error")


def set_up_logs(level: str) -> None:
    """One JSON object a line: time, level, logger, message and the fields of the call."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        JsonFormatter(
            "{asctime}{levelname}{name}{message}",
            style="{",
            rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
        )
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for noisy in ("aiohttp", "asyncio"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
