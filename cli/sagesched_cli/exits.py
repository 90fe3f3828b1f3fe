"""How every command ends: sysexits.h where it has a number for it (docs/cli.md)."""

OK = 0
NOT_FOUND = 1
"""What was asked for does not exist; a run that failed; settings that differ."""
USAGE = 64
UNAVAILABLE = 69
"""No sidecar answers there, or a package is not installed."""
PROTOCOL = 76
"""What answers is no sidecar, or one that does not know the question."""
NO_PERMISSION = 77
"""The sidecar answers loopback clients only."""
INTERRUPTED = 130

EPILOG = """exit status:
  0   done
  1   not found, the run failed, or settings differ
  64  a command, option, setting or file is wrong
  69  the sidecar is not reachable, or a package is not installed
  76  what answers at that address is no sidecar of this version
  77  the sidecar answers loopback clients only (server.explainToAll opens it)
  130 interrupted"""


class CommandError(Exception):
    """Ends a command with a line on stderr and an exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code
