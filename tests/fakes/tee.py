"""Stands between a sidecar and its engine and keeps the bytes that the engine's sockets wrote."""

import asyncio
from urllib.parse import urlsplit


class Tee:
    """Forwards connections; `answers` holds, for each in the order of opening, what the engine wrote on it."""

    def __init__(self, engine_url: str) -> None:
        at = urlsplit(engine_url)
        self._engine = at.hostname or "", at.port or 80
        self.asked: list[bytearray] = []
        self.answers: list[bytearray] = []
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        """Where the sidecar finds it."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> "Tee":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        asked, answered = bytearray(), bytearray()
        self.asked.append(asked)
        self.answers.append(answered)
        to_engine = None
        try:
            from_engine, to_engine = await asyncio.open_connection(*self._engine)
            async with asyncio.TaskGroup() as both:
                both.create_task(_copy(reader, to_engine, asked))
                both.create_task(_copy(from_engine, writer, answered))
        except* OSError:
            pass
        finally:
            self._tasks.discard(task)
            for end in (writer, to_engine):
                if end is not None:
                    end.close()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, kept: bytearray) -> None:
    while piece := await source.read(1 << 16):
        kept += piece
        target.write(piece)
        await target.drain()
    target.close()
