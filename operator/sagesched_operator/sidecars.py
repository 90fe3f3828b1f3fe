"""What sidecars say of themselves, read at the pods' addresses. One that does not answer is a fact, no failure."""

import asyncio
import re
from collections.abc import Sequence

import aiohttp

from sagesched_operator.engine_container import SIDECAR_PORT
from sagesched_operator.seen import Running

TIMEOUT_SECONDS = 3.0
AT_ONCE = 32
MAX_PAGE_BYTES = 2 << 20
_INFO = re.compile(rb'^sagesched_config_info\{.*?file_hash="([0-9a-f]+)".*\} 1(?:\.0)?$', re.M)
_OK = re.compile(rb"^sagesched_config_last_reload_successful ([01])(?:\.0)?$", re.M)


class Sidecars:
    """Asks many pods, a few at a time. `async with`."""

    def __init__(self, port: int = SIDECAR_PORT) -> None:
        self._port = port
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "Sidecars":
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS), auto_decompress=False
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def running(self, addresses: Sequence[str | None]) -> list[Running | None]:
        """The settings that each runs, in the same order."""
        return await asyncio.gather(*(self._ask(address) for address in addresses))

    async def _ask(self, address: str | None) -> Running | None:
        if address is None:
            return None
        assert self._session is not None, "use it as a context"
        host = f"[{address}]" if ":" in address else address
        try:
            async with self._turns, self._session.get(f"http://{host}:{self._port}/metrics") as answer:
                return parsed(await _bounded(answer)) if answer.status == 200 else None
        except (TimeoutError, aiohttp.ClientError):
            return None


async def _bounded(answer: aiohttp.ClientResponse) -> bytes:
    page = bytearray()
    while len(page) < MAX_PAGE_BYTES and (chunk := await answer.content.read(MAX_PAGE_BYTES)):
        page += chunk
    return bytes(page)


def parsed(page: bytes) -> Running | None:
    """What a page of metrics says of the settings; None where it says nothing."""
    info, ok = _INFO.search(page), _OK.search(page)
    return Running(info[1].decode(), ok is None or ok[1] == b"1") if info else None
