"""The command line and the settings file, parsed whole and checked before a port opens. Trouble ends with exit 64."""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, get_args

import msgspec
from yarl import URL

from sagesched.settings import ModeName, PolicyName, Settings, SettingsError, StoreName
from sagesched_sidecar.live import POLL_SECONDS
from sagesched_sidecar.logs import LEVELS
from sagesched_sidecar.settings_file import Loaded, Source

EXIT_USAGE = 64
"""sysexits.h EX_USAGE."""


class _Override(NamedTuple):
    section: str
    field: str
    text: str
    argument: dict[str, Any]


_OVERRIDES = {
    "policy": _Override("scheduling", "policy", "order of what waits", {"choices": get_args(PolicyName)}),
    "max_wait": _Override(
        "scheduling", "maxWaitSeconds", "after so long a request goes next", {"type": float, "metavar": "SECONDS"}
    ),
    "seed_history": _Override("history", "seedFile", "JSONL of earlier traffic, learnt at start", {"metavar": "FILE"}),
    "history_store": _Override("history", "store", "keeps history over restarts", {"choices": get_args(StoreName)}),
    "history_path": _Override("history", "path", "folder of the embedded store", {"metavar": "DIR"}),
    "mode": _Override("engine", "mode", "who holds the order", {"choices": get_args(ModeName)}),
    "engine_arguments": _Override(
        "engine", "arguments", "the engine's own arguments, as one word", {"type": shlex.split, "metavar": "WORDS"}
    ),
    "no_probe": _Override("engine", "probe", "never try the engine out", {"action": "store_const", "const": False}),
    "force_mode": _Override(
        "engine", "force", "use the mode though the engine was not seen to do it", {"action": "store_true"}
    ),
    "slots": _Override("engine", "slots", "max_num_seqs of the engine; else learnt from its metrics", {"type": int}),
    "extra_slots": _Override("engine", "extraSlots", "requests sent beyond the slots", {"type": int}),
    "kv_tokens": _Override("engine", "kvTokens", "KV cache in tokens; else read from its metrics", {"type": int}),
    "api_key_file": _Override("engine", "apiKeyFile", "file with the engine's API key", {"metavar": "FILE"}),
    "api_key_env": _Override("engine", "apiKeyEnv", "environment variable with it", {"metavar": "NAME"}),
    "grpc": _Override(
        "grpc",
        "listen",
        "unix:/PATH or HOST:PORT of the gRPC door; may be repeated",
        {"action": "append", "metavar": "ADDRESS"},
    ),
    "drain": _Override(
        "server", "drainSeconds", "time that SIGTERM leaves to open requests", {"type": float, "metavar": "SECONDS"}
    ),
}


class Options(NamedTuple):
    """Everything the process was told."""

    upstream: str
    host: str
    port: int
    log_level: str
    settings: Settings
    api_key: str | None
    source: Source = Source(None)
    """Where settings come from, and come from again when the file changes."""
    loaded: Loaded | None = None
    """The settings as they were read at the start; None where they came from no file and no flags."""
    settings_poll_s: float = POLL_SECONDS


class _Parser(argparse.ArgumentParser):
    """A parser that ends with 64, as the settings do."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and end."""
        self.print_usage(sys.stderr)
        self.exit(EXIT_USAGE, f"{self.prog}: {message}\n")


def parse_options(arguments: Sequence[str] | None = None) -> Options:
    """The options. Ends the process with 64 and the field's path on stderr when something is wrong."""
    parser = command_line()
    given = parser.parse_args(arguments)
    try:
        source = _source(given)
        loaded = source.load(source.read())
        settings = loaded.settings
        return Options(
            upstream=_upstream(given.upstream),
            host=given.host,
            port=given.port,
            log_level=given.log_level,
            settings=settings,
            api_key=_api_key(settings),
            source=source,
            loaded=loaded,
            settings_poll_s=given.settings_poll,
        )
    except SettingsError as error:
        parser.exit(EXIT_USAGE, f"{parser.prog}: {error}\n")


def command_line() -> argparse.ArgumentParser:
    """The parser of the sidecar's flags."""
    parser = _Parser(
        prog="sagesched_sidecar",
        description="A scheduling proxy in front of one OpenAI-compatible engine.",
        epilog="Flags outweigh the settings file, also when it changes. SIGTERM drains; a second SIGTERM ends at once.",
    )
    process = parser.add_argument_group("process")
    process.add_argument("--upstream", required=True, metavar="URL", help="the engine, as http://HOST:PORT")
    process.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    process.add_argument("--port", type=_port, default=8080, help="port; 0 takes a free one (default: %(default)s)")
    process.add_argument(
        "--settings", metavar="FILE", type=Path, help="settings as YAML or JSON, watched (default: all defaults)"
    )
    process.add_argument(
        "--settings-poll",
        type=_seconds,
        default=POLL_SECONDS,
        metavar="SECONDS",
        help="how often the file is looked at (default: %(default)s)",
    )
    process.add_argument(
        "--pod-name", metavar="NAME", help="chooses the file's revision (default: $POD_NAME, else $HOSTNAME)"
    )
    process.add_argument("--log-level", choices=LEVELS, default="info", help="least severe (default: %(default)s)")
    process.add_argument("--version", action="version", version=version("sagesched"))
    _add_overrides(parser)
    return parser


def _add_overrides(parser: argparse.ArgumentParser) -> None:
    """The flags that stand for a field of the settings file, by section."""
    defaults = msgspec.to_builtins(Settings())
    groups: dict[str, Any] = {}
    for flag, override in _OVERRIDES.items():
        group = groups.get(override.section)
        if group is None:
            group = parser.add_argument_group(f"{override.section}, over the settings file")
            groups[override.section] = group
        default = defaults[override.section][override.field]
        path = f"{override.section}.{override.field}"
        group.add_argument(
            "--" + flag.replace("_", "-"),
            default=argparse.SUPPRESS,
            help=f"{override.text} ({path}; default: {'none' if default in (None, (), []) else default})",
            **override.argument,
        )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError("must be 0 to 65535")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.01 <= seconds <= 3600:
        raise argparse.ArgumentTypeError("must be 0.01 to 3600")
    return seconds


def _source(given: argparse.Namespace) -> Source:
    """The file and the flags over it; which revision of the file is ours goes by the pod's name."""
    flags: dict[str, dict[str, object]] = {}
    for flag, override in _OVERRIDES.items():
        if flag in given:
            flags.setdefault(override.section, {})[override.field] = getattr(given, flag)
    pod = given.pod_name or os.environ.get("POD_NAME") or os.environ.get("HOSTNAME", "")
    return Source(given.settings, flags, pod)


def _upstream(text: str) -> str:
    try:
        url = URL(text)
    except ValueError:
        url = URL()
    if url.user or url.password:
        raise SettingsError(
            "--upstream: must hold no credentials; name an API key with --api-key-file or --api-key-env"
        )
    if url.scheme not in ("http", "https") or not url.host or url.query_string or url.fragment:
        raise SettingsError(f"--upstream: {text!r} is not of the form http://HOST:PORT")
    return text.rstrip("/")


def _api_key(settings: Settings) -> str | None:
    engine = settings.engine
    if engine.api_key_env is not None:
        return _key("engine.apiKeyEnv", engine.api_key_env, os.environ.get(engine.api_key_env))
    if engine.api_key_file is not None:
        try:
            text: str | None = Path(engine.api_key_file).read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError):
            text = None
        return _key("engine.apiKeyFile", engine.api_key_file, text)
    return None


def _key(field: str, reference: str, text: str | None) -> str:
    key = (text or "").strip()
    if not key or not key.isascii() or not key.isprintable():
        raise SettingsError(f"{field}: {reference} holds no API key")
    return key
