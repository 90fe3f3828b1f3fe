"""Which versions of vLLM the scheduler is tested with: an older one is refused, an unknown newer one is warned of."""

import re

OLDEST = (0, 29)
NEWEST = (0, 33)
"""The last minor version that `make test-engine-versions` has run."""


class UnsupportedVersion(RuntimeError):
    """This vLLM is too old; the message says what is needed."""


def check_version(version: str) -> str | None:
    """What to warn of; None where this version is tested. Raises UnsupportedVersion for one that is too old."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (minor := (int(found[1]), int(found[2]))) == (0, 0) or "dev" in version:
        return f"vLLM {version!r} is no released version; the scheduler of SageSched is tested with {_range()}"
    if minor < OLDEST:
        raise UnsupportedVersion(
            f"vLLM {version} is too old for the scheduler of SageSched, which needs {_range()}: "
            "its queue of waiting requests cannot be replaced there. Upgrade vLLM, or leave out --scheduler-cls"
        )
    if minor > NEWEST:
        return f"vLLM {version} is newer than what the scheduler of SageSched is tested with ({_range()})"
    return None


def _range() -> str:
    return f"{OLDEST[0]}.{OLDEST[1]} to {NEWEST[0]}.{NEWEST[1]}"
