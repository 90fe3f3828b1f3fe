"""`sagesched explain ID`: why a request stands, or stood, where it does."""

import argparse
import json
from urllib.parse import quote

from sagesched_cli.exits import OK
from sagesched_cli.reasons import about
from sagesched_cli.sidecar_client import add_sidecar_options, fetch_json

DESCRIPTION = """Why a request stands where it stands: the similar prompts behind its prediction, the predicted
distribution, its cost, index and rank. For what waits, runs, and the last thousand that ended; the id is in each
answer's x-sagesched-request-id. Exit status 1: no such request is known."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    parser.add_argument("id", metavar="ID", help="the request's id")
    parser.add_argument("--json", action="store_true", help="as the sidecar gives it")
    add_sidecar_options(parser)


def run(given: argparse.Namespace) -> int:
    """Ask and print. Raises CommandError."""
    found = fetch_json(given.url, f"/sagesched/explain/{quote(given.id, safe='')}", given.timeout)
    if given.json:
        print(json.dumps(found, indent=2))
    else:
        print("\n".join(f"{label:<12} {text}" for label, text in about(found)))
    return OK
