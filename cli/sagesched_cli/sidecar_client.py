"""Questions to a sidecar over HTTP, with the standard library alone."""

import argparse
import http.client
import json
import os
from typing import Any
from urllib.parse import urlsplit

from sagesched_cli.exits import NO_PERMISSION, NOT_FOUND, PROTOCOL, UNAVAILABLE, CommandError

DEFAULT_URL = "http://127.0.0.1:8080"
URL_VARIABLE = "SAGESCHED_URL"
MAX_ANSWER_BYTES = 64 << 20


def add_sidecar_options(parser: argparse.ArgumentParser, *, several: bool = False) -> None:
    """`--url` and `--timeout`; `several`: the first may be given more than once (`urls_of`)."""
    default = os.environ.get(URL_VARIABLE, "") or DEFAULT_URL
    parser.add_argument(
        "--url",
        type=sidecar_url,
        action="append" if several else "store",
        default=None if several else default,
        metavar="URL",
        help=f"where the sidecar listens{'; may be given more than once' if several else ''} "
        f"(default: ${URL_VARIABLE}, else {DEFAULT_URL})",
    )
    parser.add_argument("--timeout", type=positive_s, default=5.0, metavar="SECONDS", help="for an answer (default: 5)")


def urls_of(given: argparse.Namespace) -> list[str]:
    """The sidecars that a command line names, each once."""
    return list(dict.fromkeys(given.url or [sidecar_url(os.environ.get(URL_VARIABLE, "") or DEFAULT_URL)]))


def sidecar_url(text: str) -> str:
    """A URL of the form http://HOST:PORT. Raises argparse.ArgumentTypeError for another."""
    try:
        url = urlsplit(text)
        fine = url.scheme in ("http", "https") and url.hostname and url.port != 0 and not url.username
    except ValueError:
        fine = False
    if not fine or url.path.strip("/") or url.query or url.fragment:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form http://HOST:PORT")
    return text.rstrip("/")


def positive_s(text: str) -> float:
    """Seconds above 0. Raises argparse.ArgumentTypeError for anything else."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds above 0")
    return value


def fetch(url: str, path: str, timeout_s: float) -> bytes:
    """The body of a 200. Raises CommandError: not reachable, not allowed, not found, not a sidecar."""
    at = urlsplit(url)
    kind = http.client.HTTPSConnection if at.scheme == "https" else http.client.HTTPConnection
    connection = kind(at.hostname or "", at.port, timeout=timeout_s)
    try:
        connection.request("GET", path, headers={"Accept": "*/*"})
        answer = connection.getresponse()
        status, body = answer.status, answer.read(MAX_ANSWER_BYTES + 1)
    except OSError as error:
        raise CommandError(f"no sidecar answers at {url}: {str(error) or type(error).__name__}", UNAVAILABLE) from None
    except http.client.HTTPException as error:
        what = type(error).__name__
        raise CommandError(f"what answers at {url} is no sidecar: its answer is not HTTP ({what})", PROTOCOL) from None
    finally:
        connection.close()
    if status == 200 and len(body) <= MAX_ANSWER_BYTES:
        return body
    raise _refused(url, path, status, body)


def fetch_json(url: str, path: str, timeout_s: float) -> dict[str, Any]:
    """The JSON object of a 200. Raises CommandError."""
    found = _object(fetch(url, path, timeout_s))
    if found is None:
        raise CommandError(f"what answers at {url} is no sidecar: {path} gave no JSON object", PROTOCOL)
    return found


def _refused(url: str, path: str, status: int, body: bytes) -> CommandError:
    said = (_object(body) or {}).get("error")
    if status == 403 and isinstance(said, str):
        return CommandError(f"the sidecar at {url} refuses: {said}", NO_PERMISSION)
    if status == 404 and isinstance(said, str):
        return CommandError(said, NOT_FOUND)
    return CommandError(f"what answers at {url} is no sidecar of this version: {path} gave {status}", PROTOCOL)


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
