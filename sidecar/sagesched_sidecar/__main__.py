"""`python -m sagesched_sidecar --upstream URL`"""

import asyncio
import logging
import os
import sys
from collections.abc import Callable

# numpy reads it once, when it is first imported. With a thread for each core, a search of the history waits for the
# slowest of them, which on a busy machine took 15 ms instead of one.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from sagesched.embed import open_embedder
from sagesched.settings import SettingsError
from sagesched_sidecar.logs import set_up_logs
from sagesched_sidecar.options import EXIT_USAGE, parse_options
from sagesched_sidecar.server import serve

EXIT_UNAVAILABLE = 69
"""sysexits.h EX_UNAVAILABLE: the port cannot be had."""


def main() -> int:
    """Parse everything, then serve; the exit status."""
    options = parse_options()
    set_up_logs(options.log_level)
    try:
        embedder = open_embedder(options.settings.embedding)
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(serve(options, embedder))
    except SettingsError as error:
        print(f"sagesched_sidecar: {error}", file=sys.stderr)
        return EXIT_USAGE
    except OSError as error:
        logging.getLogger(__name__).error("cannot start", extra={"problem": str(error)})
        return EXIT_UNAVAILABLE
    return 0


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's loop where there is one; it halves the cost of an event."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


if __name__ == "__main__":
    sys.exit(main())
