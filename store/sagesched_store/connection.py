"""A connection to a Qdrant server, and what its failures mean."""

import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from qdrant_client import QdrantClient
from qdrant_client.http.exceptions import ApiException, ResponseHandlingException, UnexpectedResponse

from sagesched_store.place import ServerPlace
from sagesched_store.protocol import Reason, StoreError

_T = TypeVar("_T")
CONFLICT = 409
_REASONS: dict[int, Reason] = {401: "refused", 403: "refused", 404: "no-collection", 400: "rejected", 422: "rejected"}


def connect(place: ServerPlace) -> QdrantClient:
    """A client; nothing is sent yet. Raises StoreError for a key or certificate file that cannot be read."""
    return QdrantClient(
        url=place.url,
        api_key=_key(place.api_key_file),
        timeout=place.timeout_s,  # type: ignore[arg-type]  # seconds, fractions too
        check_compatibility=False,
        verify=True if place.ca_file is None else _trusted(place.ca_file),
    )


class AlreadyThereError(StoreError):
    """What was to be made is there."""


def guarded(call: Callable[[], _T]) -> _T:
    """The call's result; raises StoreError instead of what the client raises."""
    try:
        return call()
    except UnexpectedResponse as error:
        kind = AlreadyThereError if error.status_code == CONFLICT else StoreError
        raise kind(_REASONS.get(error.status_code or 0, "unreachable"), f"Qdrant: {_said(error)}") from None
    except (ApiException, ResponseHandlingException) as error:
        raise StoreError("unreachable", f"Qdrant: {_first_line(error)}") from None


def made(call: Callable[[], object]) -> bool:
    """Whether this call made it; False where it was there already. Raises StoreError."""
    try:
        guarded(call)
    except AlreadyThereError:
        return False
    return True


def _said(error: UnexpectedResponse) -> str:
    return f"{error.status_code} {error.reason_phrase}"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _key(file: str | None) -> str | None:
    if file is None:
        return None
    try:
        key = Path(file).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        key = ""
    if not key or not key.isprintable():
        raise StoreError("refused", f"{file} holds no API key")
    return key


def _trusted(file: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=file)
    except (OSError, ssl.SSLError) as error:
        raise StoreError("refused", f"{file}: no certificates can be read: {error}") from None
