"""A client of raw sockets: one blocking connection that is kept, so that what it measures is the other side."""

import json
import socket
import time
from types import TracebackType
from typing import Self

CHAT = "/v1/chat/completions"
MODEL = "bench"
PROMPT = "Explain how a heap orders what waits, and name two things that it is worse at than a sorted list."


def request_bytes(*, stream: bool, events: int = 1, pace_ms: float = 0.0, path: str = CHAT) -> bytes:
    """A small chat completion."""
    body = json.dumps(
        {"model": MODEL, "messages": [{"role": "user", "content": PROMPT}], "max_tokens": 256, "stream": stream}
    ).encode()
    return (
        b"POST %s HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
        b"X-Events: %d\r\nX-Pace-Ms: %.3f\r\nContent-Length: %d\r\n\r\n%s"
        % (path.encode(), events, pace_ms, len(body), body)
    )


class Connection:
    """See the module."""

    def __init__(self, address: tuple[str, int]) -> None:
        self._socket = socket.create_connection(address, timeout=30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.close()

    def whole_s(self, request: bytes) -> float:
        """Seconds from the request to the last byte of its answer, a 200 that states its length."""
        began = time.perf_counter()
        self._socket.sendall(request)
        data, wanted = b"", 1 << 62
        while len(data) < wanted:
            data += self._more()
            if wanted == 1 << 62 and (end := data.find(b"\r\n\r\n")) >= 0:
                wanted = end + 4 + _length(data[:end])
        return time.perf_counter() - began

    def first_event_s(self, request: bytes) -> float:
        """Seconds from the request to the first event of a chunked stream; the rest of it is read, not timed."""
        began = time.perf_counter()
        self._socket.sendall(request)
        data = b""
        while b"data: " not in data:
            data += self._more()
        seconds = time.perf_counter() - began
        while not data.endswith(b"0\r\n\r\n"):
            data += self._more()
        return seconds

    def _more(self) -> bytes:
        piece = self._socket.recv(1 << 16)
        if not piece:
            raise ConnectionError("the connection ended before the answer did")
        return piece


def _length(head: bytes) -> int:
    if not head.startswith(b"HTTP/1.1 200 "):
        raise RuntimeError(f"unexpected answer: {head.splitlines()[0].decode('latin-1')}")
    fields = head.lower().split(b"\r\n")
    return next(int(field.partition(b":")[2]) for field in fields if field.startswith(b"content-length:"))
