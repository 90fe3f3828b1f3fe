"""Clients that behave badly by seed, and the one word in which each of them says how its request ended."""

import asyncio
import contextlib
import json
import random
import socket
from collections import Counter
from dataclasses import dataclass

SURFACES = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")
REASON = b"x-sagesched-reason"
LIMIT_S = 60.0
"""A request that has not ended by then is lost, which no request may be."""
PATIENCE_S = 0.4
"""How long a client waits for an engine that has stalled."""
MAX_BODY_BYTES = 64 << 10
"""What the sidecar is told to take."""
SLOW_READ_S = 0.02

CLIENTS = {
    "plain": 46,
    "slow-reader": 4,
    "leaves-queued": 8,
    "leaves-before-first-byte": 8,
    "leaves-mid-answer": 10,
    "resets": 6,
    "half-closes": 4,
    "malformed-json": 5,
    "broken-chunks": 3,
    "oversized": 3,
    "oversized-chunks": 2,
    "body-cut-short": 3,
}
ENGINE_FAULTS = {
    "": 66,
    "error500": 5,
    "error429": 3,
    "error400": 3,
    "garbage": 3,
    "cut-head": 3,
    "cut-body": 4,
    "cut-events": 3,
    "reset": 3,
    "stall": 2,
    "late": 3,
    "long": 2,
}


@dataclass(frozen=True)
class Plan:
    """One request: what its client does, what it asks the engine to do wrong."""

    client: str
    fault: str
    path: str
    stream: bool
    words: int
    after_s: float
    """When a client that leaves does so."""


def plan(rng: random.Random) -> Plan:
    """One plan of the mix."""
    client = rng.choices(list(CLIENTS), list(CLIENTS.values()))[0]
    fault = rng.choices(list(ENGINE_FAULTS), list(ENGINE_FAULTS.values()))[0]
    if client == "slow-reader":
        fault = "long"
    return Plan(client, fault, rng.choice(SURFACES), rng.random() < 0.6, rng.randint(1, 25), rng.random() ** 2 * 0.3)


class Tally(Counter[str]):
    """How requests ended: `answered`, `refused REASON`, `engine STATUS`, `engine cut`, `left`, `lost WHY`."""

    def starting(self, word: str) -> int:
        """All whose first word is this one."""
        return sum(count for how, count in self.items() if how.split(" ")[0] == word)


async def one(address: tuple[str, int], plan: Plan) -> str:
    """Carry a plan out; how it ended."""
    try:
        async with asyncio.timeout(LIMIT_S):
            return await _attempt(address, plan)
    except TimeoutError:
        return "lost in time"


async def _attempt(address: tuple[str, int], plan: Plan) -> str:
    try:
        reader, writer = await _connected(address, slow=plan.client == "slow-reader")
    except OSError as error:
        return f"lost at the door: {type(error).__name__}"
    try:
        writer.write(_request(plan))
        return await _after_sending(plan, reader, writer)
    finally:
        if plan.client == "resets":
            writer.transport.abort()
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _connected(address: tuple[str, int], *, slow: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if not slow:
        return await asyncio.open_connection(*address)
    small = socket.socket()
    small.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    small.setblocking(False)
    await asyncio.get_running_loop().sock_connect(small, address)
    return await asyncio.open_connection(sock=small, limit=8192)


def _request(plan: Plan) -> bytes:
    document = {"model": "m", "stream": plan.stream, "messages": [{"role": "user", "content": "word " * plan.words}]}
    body = json.dumps(document).encode()
    length = [f"Content-Length: {len(body)}"]
    if plan.client == "malformed-json":
        body = b"{" + body[:-2] + b"!"
        length = [f"Content-Length: {len(body)}"]
    elif plan.client == "oversized":
        body = b"{" + b" " * MAX_BODY_BYTES + body[1:]
        length = [f"Content-Length: {len(body)}"]
    elif plan.client == "oversized-chunks":
        body = b"%x\r\n%s\r\n0\r\n\r\n" % (MAX_BODY_BYTES + 1, b" " * (MAX_BODY_BYTES + 1))
        length = ["Transfer-Encoding: chunked"]
    elif plan.client == "broken-chunks":
        body, length = b"5\r\n{    \r\nzz\r\n", ["Transfer-Encoding: chunked"]
    elif plan.client == "body-cut-short":
        length = [f"Content-Length: {len(body) + 10}"]
    fields = ["Host: x", f"X-Fault: {plan.fault}", f"X-Words: {plan.words}", "Content-Type: application/json", *length]
    return "\r\n".join([f"POST {plan.path} HTTP/1.1", *fields]).encode() + b"\r\n\r\n" + body


async def _after_sending(plan: Plan, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> str:
    leaving = plan.client.startswith("leaves") or plan.client in ("resets", "body-cut-short")
    if plan.client == "half-closes":
        writer.write_eof()
    limit_s: float | None = None
    if leaving:
        limit_s = 0.0 if plan.client == "leaves-queued" else plan.after_s
    elif plan.fault == "stall":
        limit_s = PATIENCE_S
    try:
        async with asyncio.timeout(limit_s):
            return await _read(plan, reader)
    except TimeoutError:
        return "left"
    except (ConnectionError, asyncio.IncompleteReadError) as error:
        if plan.client in ("half-closes", "body-cut-short"):
            return "left"
        return f"lost: {plan.client} {plan.fault} {type(error).__name__}"


async def _read(plan: Plan, reader: asyncio.StreamReader) -> str:
    """Read an answer to its end; how it ended. Raises where the connection ends without the head of one."""
    head = await reader.readuntil(b"\r\n\r\n")
    line, *rest = head[:-4].split(b"\r\n")
    fields = {name.lower(): value.strip() for name, _, value in (field.partition(b":") for field in rest)}
    if plan.client == "leaves-mid-answer":
        with contextlib.suppress(ConnectionError):
            await reader.read(10)
        return "left"
    whole = await _body(reader, fields, SLOW_READ_S if plan.client == "slow-reader" else 0.0)
    if REASON in fields:
        return f"refused {fields[REASON].decode()}"
    if not whole:
        return "engine cut"
    status = line.split(b" ")[1].decode()
    return "answered" if status == "200" else f"engine {status}"


async def _body(reader: asyncio.StreamReader, fields: dict[bytes, bytes], pause_s: float) -> bool:
    """Whether the whole body came."""
    try:
        if fields.get(b"transfer-encoding") == b"chunked":
            while size := int(await reader.readuntil(b"\r\n"), 16):
                await _exactly(reader, size + 2, pause_s)
            await reader.readexactly(2)
        else:
            await _exactly(reader, int(fields[b"content-length"]), pause_s)
    except (ConnectionError, asyncio.IncompleteReadError):
        return False
    return True


async def _exactly(reader: asyncio.StreamReader, size: int, pause_s: float) -> None:
    while size:
        piece = await reader.read(min(size, 1 << 16))
        if not piece:
            raise asyncio.IncompleteReadError(piece, size)
        size -= len(piece)
        await asyncio.sleep(pause_s)
