"""`sagesched history`: look at a stored history, make its collection, bring records in and out, and delete them."""

import argparse
import re
from collections.abc import Callable

from sagesched_cli import history_actions as actions
from sagesched_cli.history_place import Target, add_place_options, failed, target

DESCRIPTION = """The history that outlives sidecars: a Qdrant server that they share, or a folder of one of them (while
that one is stopped). There is no prompt in it. --dry-run tells what would be done."""
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What the command takes."""
    kinds = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, (summary, _, add) in ACTIONS.items():
        action = kinds.add_parser(name, help=summary, description=summary)
        add(action)
        add_place_options(action)
        if name != "status":
            action.add_argument("--dry-run", action="store_true", help="change nothing; tell what would be done")


def run(given: argparse.Namespace) -> int:
    """Do it. Raises CommandError."""
    from sagesched_store.protocol import StoreError

    try:
        code: int = ACTIONS[given.action][1](given, target(given))
    except StoreError as error:
        raise failed(error) from None
    return code


def _age(text: str) -> float:
    """Seconds, as 30d, 12h, 90m or 45s."""
    found = re.fullmatch(r"(\d+)([smhd])", text)
    if found is None:
        raise argparse.ArgumentTypeError("must be a number and s, m, h or d, as 30d")
    return float(int(found[1]) * _UNITS[found[2]])


def _positive(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError("must be 1 to 1000")
    return int(text)


def _add_status(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="as one JSON document")
    parser.add_argument("--tenants", type=_positive, default=20, metavar="N", help="list so many (default: 20)")


def _add_init(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shards", type=_positive, default=1, metavar="N", help="of the collection (default: 1)")
    parser.add_argument("--replicas", type=_positive, default=1, metavar="N", help="of each shard (default: 1)")


def _add_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="JSONL: an export, or prompt and output_tokens a line")
    parser.add_argument("--problems", type=_positive, default=10, metavar="N", help="bad lines to tell (default: 10)")


def _add_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="JSONL, made anew; readable by its owner alone")
    parser.add_argument("--tenant", metavar="NAME", help="this one's alone")


def _add_prune(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--older-than", type=_age, required=True, metavar="AGE", help="as 30d, 12h, 90m or 45s")


def _add_delete_tenant(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tenant", metavar="NAME", help="as `status` lists it")


Action = tuple[str, Callable[[argparse.Namespace, Target], int], Callable[[argparse.ArgumentParser], None]]
ACTIONS: dict[str, Action] = {
    "status": ("rows, tenants and what is damaged", actions.status, _add_status),
    "init": ("make the collection on a server, with its indexes; once more does no harm", actions.init, _add_init),
    "import": ("bring records in; the same file twice is once", actions.import_file, _add_import),
    "export": ("write records to a file", actions.export, _add_export),
    "prune": ("delete what is older", actions.prune, _add_prune),
    "delete-tenant": (
        "delete all of a tenant; exit status 1: there was nothing",
        actions.delete_tenant,
        _add_delete_tenant,
    ),
    "migrate": ("bring a collection of an older schema to this version's", actions.migrate, lambda parser: None),
}
