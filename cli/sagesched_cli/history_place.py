"""Which store a `sagesched history` command is about: by a settings file, or by options."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sagesched_cli.exits import UNAVAILABLE, USAGE, CommandError

if TYPE_CHECKING:
    from sagesched.settings import Settings
    from sagesched_store.place import Place, ServerPlace
    from sagesched_store.protocol import Store, StoreError
    from sagesched_store.record import Space

ROWS = 1 << 40
"""These commands delete what they are told to, and nothing because there is too much."""


class Target(NamedTuple):
    """A store, and the vector space whose records are meant."""

    place: "Place"
    space: "Space"
    settings: "Settings"

    def open(self) -> "Store":
        """The store, in this process. Raises CommandError."""
        from sagesched_store.place import open_store
        from sagesched_store.protocol import StoreError

        try:
            return open_store(self.place, self.space, ROWS)
        except StoreError as error:
            raise failed(error) from None

    def server(self) -> "ServerPlace":
        """The server. Raises CommandError for a folder."""
        from sagesched_store.place import ServerPlace

        if not isinstance(self.place, ServerPlace):
            raise CommandError("a folder needs no init and no migration: a sidecar makes it", USAGE)
        return self.place


def add_place_options(parser: argparse.ArgumentParser) -> None:
    """Where the store is."""
    parser.add_argument("--settings", metavar="FILE", help="a sidecar's settings file: its store and its embedder")
    parser.add_argument("--url", metavar="URL", help="a Qdrant server, over the settings file")
    parser.add_argument("--path", metavar="DIR", help="a folder of an embedded store, over the settings file")
    parser.add_argument("--api-key-file", metavar="FILE", help="with --url: file that holds the server's API key")
    parser.add_argument("--ca-file", metavar="FILE", help="with --url: certificates that the server's is believed by")
    parser.add_argument("--collection-prefix", metavar="NAME", help="with --url (default: sagesched)")


def target(given: argparse.Namespace) -> Target:
    """What the options name. Raises CommandError."""
    from sagesched.embed import open_embedder
    from sagesched_sidecar.durable_history import place_of
    from sagesched_store.record import Space

    settings = _settings(given)
    place = place_of(settings.history)
    if place is None:
        raise CommandError("name a store: --settings FILE with history.store, --url URL or --path DIR", USAGE)
    embedder = open_embedder(settings.embedding)
    return Target(place, Space(embedder.name, embedder.dimensions), settings)


def failed(error: "StoreError") -> CommandError:
    """How a command ends whose store could not do it."""
    hint = "; run `sagesched history init`" if error.reason == "no-collection" else ""
    return CommandError(f"{error}{hint}", UNAVAILABLE)


def _settings(given: argparse.Namespace) -> "Settings":
    import msgspec

    from sagesched.revisions import decode_revisions
    from sagesched.settings import SettingsError, decode
    from sagesched_sidecar.settings_file import Source, parsed

    try:
        document = {}
        if given.settings:
            reading = Source(Path(given.settings)).read()
            if reading.problem is not None:
                raise SettingsError(reading.problem)
            document = msgspec.to_builtins(decode_revisions(parsed(reading.content, given.settings)).stable)
        return decode(document | _named(given, document.get("history", {})))
    except SettingsError as error:
        raise CommandError(str(error), USAGE) from None


def _named(given: argparse.Namespace, history: dict[str, object]) -> dict[str, object]:
    """The history section as the options change it."""
    if given.url and given.path:
        raise CommandError("--path: name it or --url, not both", USAGE)
    if given.path:
        history = history | {"store": "embedded", "path": given.path, "server": None}
    if given.url:
        named = {"apiKeyFile": given.api_key_file, "caFile": given.ca_file, "collectionPrefix": given.collection_prefix}
        server = {"url": given.url} | {name: value for name, value in named.items() if value}
        history = history | {"store": "server", "path": None, "server": server}
    return {"history": history}
