"""`sagesched settings check FILE` and `sagesched settings diff A B`."""

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sagesched_cli.exits import NOT_FOUND, OK, USAGE, CommandError
from sagesched_cli.sidecar_client import fetch_json, positive_s, sidecar_url

if TYPE_CHECKING:
    from sagesched.live import Change
    from sagesched.revisions import Revisions
    from sagesched.settings import Settings

DESCRIPTION = """Look at settings files before a sidecar does: what is wrong in one, what has no effect, what its digest
is; and what two differ in, and whether a running sidecar would take that over."""
CHECK = """Every wrong field of a settings file by its path; for a valid one each revision's digest, and a warning for
each field that was given and has no effect. Exit status 64: it is wrong."""
DIFF = """The fields that two settings differ in, old and new, and whether a running sidecar takes each over or waits
for a restart. A and B are files, or http://HOST:PORT of a running sidecar: the settings that it uses, flags among them.
With one file: its stable revision and its candidate. Exit status 1: they differ."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    check = actions.add_parser("check", help="what is wrong in a file, and what has no effect", description=CHECK)
    check.add_argument("file", metavar="FILE", help="YAML or JSON")
    diff = actions.add_parser("diff", help="what two files, or a file and a sidecar, differ in", description=DIFF)
    diff.add_argument("a", metavar="A", help="a file or a sidecar's URL")
    diff.add_argument("b", metavar="B", nargs="?", help="another; without it, the candidate of A")
    diff.add_argument(
        "--revision",
        choices=("stable", "candidate"),
        default="stable",
        help="which revision of a file that holds two (default: %(default)s)",
    )
    diff.add_argument("--timeout", type=positive_s, default=5.0, metavar="SECONDS", help="for a sidecar (default: 5)")
    for action in (check, diff):
        action.add_argument("--json", action="store_true", help="as one JSON document")


def run(given: argparse.Namespace) -> int:
    """Look and print. Raises CommandError."""
    return _check(given) if given.action == "check" else _diff(given)


def _check(given: argparse.Namespace) -> int:
    from sagesched.problems import problems_of
    from sagesched.revisions import decode_revisions

    document = _document(given.file)
    problems = [one.partition(": ") for one in problems_of(document)]
    revisions = [] if problems else list(_described(decode_revisions(document)))
    if given.json:
        found = [{"path": path, "problem": what} for path, _, what in problems]
        print(json.dumps({"valid": not problems, "problems": found, "revisions": revisions}, indent=2))
    else:
        for path, _, what in problems:
            print(f"{given.file}: {path}: {what}")
        for one in revisions:
            print(f"{given.file}: {one['revision']}: valid, digest {one['digest']}{_for(one['pods'])}")
            for idle in one["idle"]:
                print(f"{given.file}: {one['revision']}: warning: {idle['path']} has no effect: {idle['why']}")
    return USAGE if problems else OK


def _described(both: "Revisions") -> Iterator[dict[str, Any]]:
    from sagesched.idle import idle_fields
    from sagesched.settings import digest

    candidate = both.candidate
    named: list[tuple[str, Settings, list[str] | None]] = [("stable", both.stable, None)]
    if candidate is not None:
        named.append(("candidate", candidate.settings, list(candidate.pods)))
    for name, settings, pods in named:
        idle = [one._asdict() for one in idle_fields(settings)]
        yield {"revision": name, "digest": digest(settings), "pods": pods, "idle": idle}


def _for(pods: list[str] | None) -> str:
    if pods is None:
        return ""
    named = ", ".join(pods[:5]) + (f" and {len(pods) - 5} more" if len(pods) > 5 else "")
    return f", for {named}" if pods else ", for no pod"


def _diff(given: argparse.Namespace) -> int:
    from sagesched.live import differences

    one = _settings(given, given.a, given.revision)
    other = _settings(given, given.b, given.revision) if given.b else _settings(given, given.a, "candidate")
    changes = differences(one, other)
    if given.json:
        found = [change._asdict() | {"live": change.restart is None, "restart": change.restart} for change in changes]
        print(json.dumps({"same": not changes, "changes": found}, indent=2))
    else:
        for change in changes:
            print(_line(change))
    return NOT_FOUND if changes else OK


def _line(change: "Change") -> str:
    when = "live" if change.restart is None else f"needs a restart: {change.restart}"
    return f"{change.path}: {json.dumps(change.old)} -> {json.dumps(change.new)} ({when})"


def _settings(given: argparse.Namespace, where: str, revision: str) -> "Settings":
    """A sidecar's settings in use, or a file's revision. Raises CommandError."""
    from sagesched.revisions import decode_revisions
    from sagesched.settings import SettingsError, decode

    try:
        if where.startswith(("http://", "https://")):
            if not given.b:
                raise CommandError("B: is required where A is a sidecar", USAGE)
            return decode(fetch_json(_url(where), "/sagesched/settings", given.timeout).get("settings"))
        both = decode_revisions(_document(where))
    except SettingsError as error:
        raise CommandError(f"{where}: {error}", USAGE) from None
    if revision == "stable":
        return both.stable
    if both.candidate is None:
        raise CommandError(f"{where}: candidate: there is none in this file", USAGE)
    return both.candidate.settings


def _url(text: str) -> str:
    try:
        return sidecar_url(text)
    except argparse.ArgumentTypeError as error:
        raise CommandError(str(error), USAGE) from None


def _document(path: str) -> Any:
    from sagesched.settings import SettingsError
    from sagesched_sidecar.settings_file import Source, parsed

    reading = Source(Path(path)).read()
    try:
        if reading.problem is not None:
            raise SettingsError(reading.problem.removeprefix("--settings: "))
        return parsed(reading.content, path)
    except SettingsError as error:
        raise CommandError(str(error), USAGE) from None
