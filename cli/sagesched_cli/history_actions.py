"""What each action of `sagesched history` does."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from sagesched_cli.exits import NOT_FOUND, OK, USAGE, CommandError
from sagesched_cli.history_place import Target

if TYPE_CHECKING:
    from sagesched_store.protocol import Store
    from sagesched_store.record import Record

BATCH = 250
PAGE = 500


def status(given: argparse.Namespace, of: Target) -> int:
    """Tell what is there."""
    from sagesched_store.record import SCHEMA

    store = of.open()
    tenants = store.tenants()
    newest = store.newest(1)
    store.close()
    facts = {
        "embedder": of.space.embedder,
        "dimensions": of.space.dimensions,
        "schema": SCHEMA,
        "rows": sum(tenants.values()),
        "newest_s": newest[0].finished_s if newest else None,
        "damaged": store.health.damaged_records,
        "tenants": dict(list(tenants.items())[: given.tenants]),
    }
    if given.json:
        print(json.dumps(facts, indent=2))
        return OK
    for name, value in facts.items():
        if name != "tenants":
            print(f"{name:<12} {value}")
    for tenant, rows in list(tenants.items())[: given.tenants]:
        print(f"  {rows:>10} {json.dumps(tenant)}")
    if len(tenants) > given.tenants:
        print(f"  and {len(tenants) - given.tenants} more tenants")
    return OK


def init(given: argparse.Namespace, of: Target) -> int:
    """Make the collection."""
    from sagesched_store.collection import Shape, check, create, name_of
    from sagesched_store.connection import connect
    from sagesched_store.protocol import StoreError

    place = of.server()
    client, name = connect(place), name_of(place, of.space)
    if given.dry_run:
        try:
            check(client, name, of.space)
        except StoreError as error:
            if error.reason != "no-collection":
                raise
            print(f"{name}: would be made, {given.shards} shards, {given.replicas} replicas")
            return OK
        print(f"{name}: is there; its indexes would be completed")
        return OK
    made = create(client, place, of.space, Shape(given.shards, given.replicas))
    print(f"{name}: {'made' if made else 'is there'}")
    return OK


def migrate(given: argparse.Namespace, of: Target) -> int:
    """Bring a collection to this version's schema."""
    from sagesched_store.collection import check, name_of
    from sagesched_store.connection import connect
    from sagesched_store.record import SCHEMA

    place = of.server()
    name = name_of(place, of.space)
    check(connect(place), name, of.space)  # another schema is refused here: there is none before this one
    print(f"{name}: is of schema {SCHEMA}; nothing to do")
    return OK


def import_file(given: argparse.Namespace, of: Target) -> int:
    """Bring a file's records in."""
    from sagesched.embed import open_embedder
    from sagesched_cli.history_files import records_in

    embedder = open_embedder(of.settings.embedding)
    done = wrong = 0
    store = None if given.dry_run else of.open()
    try:
        for batch in _batches(records_in(Path(given.file), of.space, embedder), _progress("import")):
            records = [one for one in batch if not isinstance(one, str)]
            problems = [one for one in batch if isinstance(one, str)]
            for problem in problems[: max(0, given.problems - wrong)]:
                print(f"{given.file}: {problem}", file=sys.stderr)
            done, wrong = done + len(records), wrong + len(problems)
            if store is not None:
                store.append(records)
    except OSError as error:
        raise CommandError(f"{given.file}: {error.strerror}", USAGE) from None
    finally:
        if store is not None:
            store.close()
    print(f"{done} records {'would be imported' if given.dry_run else 'imported'}, {wrong} lines skipped")
    return NOT_FOUND if wrong and not done else OK


def export(given: argparse.Namespace, of: Target) -> int:
    """Write a file of records."""
    from sagesched_cli.history_files import line_of

    store = of.open()
    done = 0
    try:
        if given.dry_run:
            print(f"{store.count(given.tenant)} records would be exported")
            return OK
        new = Path(given.file + ".new")
        with new.open("wb") as out:
            new.chmod(0o600)
            for record in _every(store, _progress("export", store.count())):
                if given.tenant in (None, record.tenant):
                    out.write(line_of(record))
                    done += 1
        new.rename(given.file)
    except OSError as error:
        raise CommandError(f"{given.file}: {error.strerror}", USAGE) from None
    finally:
        store.close()
    print(f"{done} records exported")
    return OK


def prune(given: argparse.Namespace, of: Target) -> int:
    """Delete what is old."""
    before_s = time.time() - given.older_than
    store = of.open()
    try:
        if given.dry_run:
            old = sum(record.finished_s < before_s for record in _every(store, _progress("count", store.count())))
            print(f"{old} records would be deleted")
        else:
            print(f"{store.delete_before(before_s)} records deleted")
    finally:
        store.close()
    return OK


def delete_tenant(given: argparse.Namespace, of: Target) -> int:
    """Delete what is a tenant's."""
    store = of.open()
    try:
        had = store.count(given.tenant) if given.dry_run else store.delete_tenant(given.tenant)
    finally:
        store.close()
    print(f"{had} records {'would be deleted' if given.dry_run else 'deleted'}")
    return OK if had else NOT_FOUND


def _every(store: "Store", seen: Callable[[int], object]) -> Iterator["Record"]:
    """All records of a store, page by page."""
    after: str | None = None
    while True:
        page = store.page(after, PAGE)
        yield from page.records
        seen(len(page.records))
        if (after := page.after) is None:
            return


def _batches(lines: Iterator["Record | str"], seen: Callable[[int], object]) -> Iterator[list["Record | str"]]:
    batch: list[Record | str] = []
    for one in lines:
        batch.append(one)
        if len(batch) == BATCH:
            seen(len(batch))
            yield batch
            batch = []
    seen(len(batch))
    yield batch


def _progress(what: str, total: int | None = None) -> Callable[[int], object]:
    """A bar on stderr, where that is a terminal."""
    from tqdm import tqdm

    return tqdm(total=total, desc=what, unit=" records", disable=not sys.stderr.isatty()).update
