"""A seeded mix of exchanges: what the client sends, what the engine's socket writes, and what the client must read."""

import json
import random
from dataclasses import dataclass, field

PATHS = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/models",
    "/v1/embeddings",
    "/x/y",
]
ENDINGS = [b"\n\n", b"\n\n", b"\n\n", b"\r\n\r\n", b"\r\r"]
USAGE = (
    b'data: {"id":"c","object":"chat.completion.chunk","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":9}}'
)


@dataclass
class Exchange:
    """One request and its scripted answer."""

    number: int
    method: str
    path: str
    body: bytes
    status: str = "200 OK"
    fields: list[str] = field(default_factory=list)
    answer: bytes = b""
    """The body as the engine means it."""
    expected: bytes = b""
    """What the client reads of it."""
    stripped: tuple[int, int] | None = None
    """Where in the answer the usage event lies that the client does not read, without its blank line."""
    framing: str = "length"
    cut_after: int | None = None
    """Bytes of the body after which the engine's connection ends."""

    @property
    def read(self) -> bytes:
        """What the client reads, of a cut answer too: a usage event that came whole is missing."""
        if self.cut_after is None:
            return self.expected
        came = self.answer[: self.cut_after]
        if self.stripped is None or self.cut_after < self.stripped[1]:
            return came
        return came[: self.stripped[0]] + came[len(self.answer) - len(self.expected) + self.stripped[0] :]

    def wire(self, rng: random.Random) -> list[bytes]:
        """What the engine's socket writes, in pieces cut at random."""
        body = self.answer if self.cut_after is None else self.answer[: self.cut_after]
        head = [f"HTTP/1.1 {self.status}", *self.fields]
        if self.framing == "chunked":
            head.append("Transfer-Encoding: chunked")
            body = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in pieces(rng, body, 6))
            body += b"" if self.cut_after is not None else b"0\r\n\r\n"
        elif self.framing == "length":
            head.append(f"Content-Length: {len(self.answer)}")
        data = "\r\n".join(head).encode() + b"\r\n\r\n" + body
        return pieces(rng, data, 8)


def pieces(rng: random.Random, data: bytes, most: int) -> list[bytes]:
    """The data in at most so many pieces; none is empty."""
    cuts = sorted({rng.randint(0, len(data)) for _ in range(rng.randint(0, most))})
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True) if a < b]


def make(rng: random.Random, number: int) -> Exchange:
    """One exchange of the mix."""
    path = rng.choice(PATHS)
    streams = rng.random() < 0.6
    wants_usage = rng.random() < 0.4
    document = {
        "model": rng.choice(["m", "n"]),
        "stream": streams,
        "n": rng.randint(1, 2),
        "messages": [{"role": "user", "content": "word " * rng.randint(0, 50)}],
    }
    if wants_usage:
        document["stream_options"] = {"include_usage": True}
    method = "POST" if path in PATHS[:4] else rng.choice(["GET", "POST", "PUT"])
    made = Exchange(number, method, path, b"" if method == "GET" else json.dumps(document).encode())
    if rng.random() < 0.1:
        made.status, made.answer = (
            rng.choice(["400 Bad Request", "404 Not Found", "500 Oops"]),
            rng.randbytes(rng.randint(0, 300)),
        )
        made.expected = made.answer
    elif streams:
        _stream(rng, made, strips=path in PATHS[:2] and not wants_usage)
    else:
        made.fields.append(rng.choice(["Content-Type: application/json", "Content-Type: text/plain", "X-None: 1"]))
        made.answer = made.expected = _full(rng)
    made.framing = rng.choice(["chunked", "chunked", "length", "close"])
    if made.framing != "close" and made.answer and rng.random() < 0.08:
        made.cut_after = rng.randrange(len(made.answer))
    return made


def _full(rng: random.Random) -> bytes:
    usage = {"prompt_tokens": 3, "completion_tokens": rng.randint(0, 50)}
    size = rng.choice([0, 10, 1000, 100_000])
    return rng.choice([json.dumps({"usage": usage, "text": "x" * size}).encode(), rng.randbytes(size), b'{"usage": 3}'])


def _stream(rng: random.Random, made: Exchange, *, strips: bool) -> None:
    made.fields += ["Content-Type: text/event-stream; charset=utf-8", "Cache-Control: no-cache"]
    end = rng.choice(ENDINGS)
    for _ in range(rng.randint(0, 12)):
        _add(made, _event(rng) + end)
    if rng.random() < 0.8:
        made.answer += USAGE + end
        made.expected += b"" if strips else USAGE + end
        if strips:
            made.stripped = len(made.answer) - len(USAGE + end), len(made.answer) - len(end)
    if rng.random() < 0.8:
        _add(made, b"data: [DONE]" + rng.choice([end, b"", b"\n"]))
    if rng.random() < 0.05:
        made.fields.append("Content-Encoding: x-unknown")
        made.expected, made.stripped = made.answer, None


def _add(made: Exchange, data: bytes) -> None:
    made.answer += data
    made.expected += data


def _event(rng: random.Random) -> bytes:
    word = json.dumps(
        {"choices": [{"index": 0, "delta": {"content": "w" * rng.randint(0, 40)}, "finish_reason": None}]}
    )
    return rng.choice(
        [
            b"data: " + word.encode(),
            b"data: " + word.encode(),
            b": comment",
            b'event: response.output_text.delta\ndata: {"delta":"x"}',
            b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"completion_tokens":3}}',
            b"data: " + bytes(b for b in rng.randbytes(rng.choice([5, 50, 5000])) if b not in b"\r\n"),
            b'data: {"error":{"message":"x"}}',
            b"data: " + b"L" * 60_000,
        ]
    )
