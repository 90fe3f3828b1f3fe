"""The least that an aiohttp proxy can be: no queue, no prediction, no accounting. The peer of the sidecar.

`python -m bench.passthrough URL`
"""

import asyncio
import json
import sys

import aiohttp
import uvloop
from aiohttp import web


async def serve(upstream: str) -> None:
    """Serve until ended."""
    session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), auto_decompress=False)

    async def forward(request: web.BaseRequest) -> web.StreamResponse:
        headers = {name: value for name, value in request.headers.items() if name not in ("Host", "Content-Length")}
        body = await request.read()
        async with session.request(request.method, upstream + request.path_qs, headers=headers, data=body) as source:
            answer = web.StreamResponse(status=source.status, headers={"Content-Type": source.content_type})
            answer.content_length = source.content_length
            await answer.prepare(request)
            async for piece in source.content.iter_any():
                await answer.write(piece)
            await answer.write_eof()
        return answer

    runner = web.ServerRunner(web.Server(forward, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, backlog=1024).start()
    host, port = runner.addresses[0][:2]
    print(json.dumps({"url": f"http://{host}:{port}"}), flush=True)
    async with session:
        await asyncio.Event().wait()


if __name__ == "__main__":
    sys.exit(uvloop.run(serve(sys.argv[1])))
