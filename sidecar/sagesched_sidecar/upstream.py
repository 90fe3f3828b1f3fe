"""The engine's side of an exchange. One exchange, one connection: a stale keep-alive connection can lose no request,
and closing it is how the engine learns that the client has left."""

import io
from collections.abc import AsyncIterator
from typing import Self

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from sagesched_sidecar.connector import DirectConnector
from sagesched_sidecar.errors import (
    BAD_TARGET,
    ENGINE_BAD_ANSWER,
    ENGINE_CUT,
    ENGINE_UNREACHABLE,
    EngineGoneError,
    Refusal,
)

MAX_HEADER_BYTES = 65_536
CONNECT_SECONDS = 15.0
_LARGE_BODY_BYTES = 1 << 20
_UNTOUCHED = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")


class Upstream:
    """Opens exchanges with one engine."""

    def __init__(self, base_url: str) -> None:
        self._base = URL(base_url)
        self._prefix = self._base.raw_path.rstrip("/")
        self._session = aiohttp.ClientSession(
            connector=DirectConnector(),
            auto_decompress=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            max_line_size=MAX_HEADER_BYTES,
            max_field_size=MAX_HEADER_BYTES,
            skip_auto_headers=_UNTOUCHED,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def open(
        self, method: str, target: str, headers: CIMultiDict[str], body: bytes | AsyncIterator[bytes] | None
    ) -> aiohttp.ClientResponse:
        """The engine's answer, its body unread. Raises EngineGoneError. The caller closes the answer."""
        data = io.BytesIO(body) if isinstance(body, bytes) and len(body) > _LARGE_BODY_BYTES else body
        try:
            return await self._session.request(
                method, self._url(target), headers=headers, data=data, allow_redirects=False
            )
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            raise _gone(503, ENGINE_UNREACHABLE, "the engine cannot be reached", retry_after_s=1) from error
        except (aiohttp.ClientConnectionError, ConnectionError) as error:
            raise _gone(502, ENGINE_CUT, "the engine closed the connection before it answered") from error
        except aiohttp.ClientError as error:
            raise _gone(502, ENGINE_BAD_ANSWER, "the engine's answer is not valid HTTP") from error

    def _url(self, target: str) -> URL:
        if not target.startswith("/"):
            _, found, rest = target.partition("://")
            path = rest.find("/")
            if not found or path < 0:
                raise _gone(400, BAD_TARGET, "the request target must be a path")
            target = rest[path:]
        # The query stays in the path: parsed apart, an empty one would be lost.
        return self._base.with_path(self._prefix + target, encoded=True)


def _gone(status: int, reason: str, message: str, *, retry_after_s: float | None = None) -> EngineGoneError:
    return EngineGoneError(Refusal(status, reason, message, retry_after_s))
