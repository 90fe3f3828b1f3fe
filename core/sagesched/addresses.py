"""Where a door listens: `unix:/PATH`, or `HOST:PORT` with an IP address, `localhost` or `[IPv6]`."""

import ipaddress
from typing import NamedTuple

MAX_PATH_BYTES = 103
"""Of a socket's path; the shortest limit among the systems that have one."""


class Address(NamedTuple):
    """A socket's path, or host and port; port 0 takes a free one."""

    path: str | None
    host: str
    port: int

    @property
    def is_private(self) -> bool:
        """Whether nobody outside the machine can reach it."""
        return self.path is not None or is_loopback(self.host)

    def __str__(self) -> str:
        if self.path is not None:
            return f"unix:{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def is_loopback(host: str) -> bool:
    """Whether that host is this machine, as far as its name or IP address says."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_address(text: str) -> Address:
    """Raises ValueError that says what is wrong with it."""
    if text.startswith("unix:"):
        path = text.removeprefix("unix:")
        if not path.startswith("/") or path.endswith("/") or len(path.encode()) > MAX_PATH_BYTES:
            raise ValueError(f"{text!r} must be unix: and an absolute path of at most {MAX_PATH_BYTES} bytes")
        return Address(path, "", 0)
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    host = host[1:-1] if bracketed else host
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65_535 or (":" in host) != bracketed:
        raise ValueError(f"{text!r} is not of the form HOST:PORT or unix:/PATH")
    if host != "localhost":
        try:
            ipaddress.ip_address(host)
        except ValueError:
            raise ValueError(f"{text!r} needs an IP address or localhost before the port") from None
    return Address(None, host, int(port))
