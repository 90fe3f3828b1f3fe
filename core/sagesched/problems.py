"""Everything that is wrong with a settings file, not only what is found first."""

import copy
from typing import Any

from sagesched.revisions import decode_revisions
from sagesched.settings import SettingsError

MAX_PROBLEMS = 50


def problems_of(document: Any) -> tuple[str, ...]:
    """Each as `path: what is wrong`; none for a valid file. One for each wrong field: where it is wrong twice, the
    first. What another problem hides is not listed before that is gone."""
    left, found = copy.deepcopy(document), list[str]()
    while len(found) < MAX_PROBLEMS:
        try:
            decode_revisions(left)
        except SettingsError as error:
            found.append(str(error))
            if not _taken_out(left, str(error).partition(": ")[0]):
                break
        else:
            break
    return tuple(found)


def _taken_out(document: Any, path: str) -> bool:
    """Take the innermost member that the path names out of the document; whether there was one."""
    inside = document
    *names, last = [name.partition("[")[0] for name in path.split(".")]
    for name in names:
        if not isinstance(inside, dict) or not isinstance(inside.get(name), dict):
            last = name
            break
        inside = inside[name]
    if not isinstance(inside, dict) or last not in inside:
        return False
    del inside[last]
    return True
