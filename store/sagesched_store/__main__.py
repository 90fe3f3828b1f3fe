"""`python -m sagesched_store OPENING`: keeps one store for the process at the other end of its pipes.

It ends when that process does. Signals meant for the host's group are the host's to heed.
"""

import os
import signal
import sys
from functools import partial

import msgspec

from sagesched_store.messages import (
    ASK,
    Answer,
    Append,
    Ask,
    Close,
    Count,
    DeleteBefore,
    DeleteTenant,
    Failed,
    HowMany,
    Look,
    Newest,
    Opening,
    Paged,
    Ready,
    Records,
    Seen,
    Tenants,
    Turn,
    Who,
    packed,
    read_message,
)
from sagesched_store.place import open_store
from sagesched_store.protocol import Store, StoreError
from sagesched_store.record import Space

NICENESS = 5
"""What it does can wait; the requests that its host serves cannot."""
REQUESTS_FD, ANSWERS_FD = 0, 1


def main() -> int:
    """Open, then answer until the pipe ends; the exit status."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.nice(NICENESS)
    opening = msgspec.json.decode(sys.argv[1], type=Opening)
    try:
        store = open_store(opening.place, Space(opening.embedder, opening.dimensions), opening.rows)
    except StoreError as error:
        _send(Failed(error.reason, str(error)))
        return 1
    _send(Ready(store.health))
    while (body := read_message(partial(os.read, REQUESTS_FD))) is not None:
        ask = ASK.decode(body)
        _send(_answer(store, ask))
        if isinstance(ask, Close):
            return 0
    # The host is gone. The journal has everything; what a flush would save belongs to whoever waits for the folder.
    return 0


def _answer(store: Store, ask: Ask) -> Answer:
    try:
        return _done(store, ask)
    except StoreError as error:
        return Failed(error.reason, str(error))


def _done(store: Store, ask: Ask) -> Answer:
    match ask:
        case Append(records):
            store.append(records)
            return Count(len(records))
        case Newest(limit, tenant, models):
            return Records(store.newest(limit, tenant, models), store.health)
        case Look(since_s, limit):
            return Seen(store.changes(since_s, limit))
        case Turn(after, limit):
            return Paged(store.page(after, limit))
        case Who():
            return Tenants(store.tenants())
        case HowMany(tenant):
            return Count(store.count(tenant))
        case DeleteTenant(tenant):
            return Count(store.delete_tenant(tenant))
        case DeleteBefore(finished_s):
            return Count(store.delete_before(finished_s))
        case Close():
            store.close()
            return Count(0)


def _send(answer: Answer) -> None:
    data = memoryview(packed(answer))
    while data:
        data = data[os.write(ANSWERS_FD, data) :]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except BrokenPipeError:
        sys.exit(0)
