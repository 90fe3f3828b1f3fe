"""An engine that fails as its clients' headers ask, as a process: `python faulty_engine.py PORT`.

Raw sockets, so that it can break HTTP where a real server cannot. It prints one JSON line when it listens.
"""

import asyncio
import json
import sys

FAULTS = ("error500", "error429", "error400", "garbage", "cut-head", "cut-body", "cut-events", "reset", "stall", "late")
WORD = b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{"content":" word"}}]}\n\n'
LAST = (
    b'data: {"id":"c","object":"chat.completion.chunk","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
)
LONG_ANSWER_BYTES = 1 << 20
LATE_S = 0.2
EVENT_S = 0.002
METRICS = b"vllm:num_requests_running 0.0\nvllm:num_requests_waiting 0.0\n"


def reply(status: bytes, body: bytes) -> bytes:
    head = b"HTTP/1.1 %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % (status, len(body)) + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def error(kind: str) -> bytes:
    return json.dumps({"error": {"message": "asked for", "type": kind}}).encode()


def answer(words: int, filler: int) -> bytes:
    usage = {"prompt_tokens": 9, "completion_tokens": words, "input_tokens": 9, "output_tokens": words}
    choice = {"index": 0, "message": {"content": "x" * filler}, "finish_reason": "stop"}
    return json.dumps({"id": "c", "choices": [choice], "usage": usage}).encode()


async def read_request(reader: asyncio.StreamReader) -> tuple[bytes, dict[str, str], bytes]:
    """Request line, headers and body, which has a stated length on scheduled paths."""
    head = await reader.readuntil(b"\r\n\r\n")
    line, *rest = head[:-4].split(b"\r\n")
    fields = {k.decode().lower(): v.strip().decode() for k, _, v in (field.partition(b":") for field in rest)}
    return line, fields, await reader.readexactly(int(fields.get("content-length", "0")))


async def serve_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        line, fields, body = await read_request(reader)
        if line.startswith(b"GET"):
            writer.write(reply(b"200 OK", METRICS if b"/metrics" in line else b"{}"))
        else:
            await answer_post(fields, body, reader, writer)
        await writer.drain()
    except (ConnectionError, asyncio.IncompleteReadError):
        pass
    finally:
        writer.close()


async def answer_post(
    fields: dict[str, str], body: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    fault, words = fields.get("x-fault", ""), int(fields.get("x-words", "5"))
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if not isinstance(document, dict):
        writer.write(reply(b"400 Bad Request", error("bad json")))
    elif fault.startswith("error"):
        writer.write(reply(b"%s Asked For" % fault[5:].encode(), error(fault)))
    elif fault == "garbage":
        writer.write(b"\x16\x03\x01 this is no HTTP at all\r\n\r\n")
    elif fault == "cut-head":
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Ty")
    elif fault == "reset":
        writer.transport.abort()
    elif fault == "stall":
        await reader.read(1)  # nothing is said until the other side leaves
    else:
        await answer_well(document, fault, words, writer)


async def answer_well(document: dict[str, object], fault: str, words: int, writer: asyncio.StreamWriter) -> None:
    if fault == "late":
        await asyncio.sleep(LATE_S)
    if not document.get("stream"):
        await asyncio.sleep(words * EVENT_S)
        whole = reply(b"200 OK", answer(words, LONG_ANSWER_BYTES if fault == "long" else 10))
        writer.write(whole[:-7] if fault.startswith("cut") else whole)
        return
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for _ in range(words):
        writer.write(chunk(WORD))
        await writer.drain()
        await asyncio.sleep(EVENT_S)
    if fault == "cut-body":
        writer.write(chunk(WORD)[:-40])
    elif fault == "cut-events":
        writer.write(chunk(WORD))
    else:
        if fault == "long":
            writer.write(chunk(WORD * (LONG_ANSWER_BYTES // len(WORD))))
        writer.write(chunk(LAST) + chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")


async def main(port: int) -> None:
    server = await asyncio.start_server(serve_one, "127.0.0.1", port, backlog=1024, reuse_address=True)
    print(json.dumps({"url": f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"}), flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
