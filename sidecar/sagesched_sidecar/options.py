"""The command line and the settings file, parsed whole and checked before a port opens. Trouble ends with exit 64."""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, get_args

import msgspec
import yaml
from yarl import URL

from sagesched.settings import PolicyName, Settings, SettingsError, decode
from sagesched_sidecar.logs import LEVELS

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
    "slots": _Override("engine", "slots", "max_num_seqs of the engine; else learnt from its metrics", {"type": int}),
    "extra_slots": _Override("engine", "extraSlots", "requests sent beyond the slots", {"type": int}),
    "kv_tokens": _Override("engine", "kvTokens", "KV cache in tokens; else read from its metrics", {"type": int}),
    "api_key_file": _Override("engine", "apiKeyFile", "file with the engine's API key", {"metavar": "FILE"}),
    "api_key_env": _Override("engine", "apiKeyEnv", "environment variable with it", {"metavar": "NAME"}),
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


class _Parser(argparse.ArgumentParser):
    """A parser that ends with 64, as the settings do."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and end."""
        self.print_usage(sys.stderr)
        self.exit(EXIT_USAGE, f"{self.prog}: {message}\n")


def parse_options(arguments: Sequence[str] | None = None) -> Options:
    """The options. Ends the process with 64 and the field's path on stderr when something is wrong."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        settings = _settings(given)
        return Options(
            upstream=_upstream(given.upstream),
            host=given.host,
            port=given.port,
            log_level=given.log_level,
            settings=settings,
            api_key=_api_key(settings),
        )
    except SettingsError as error:
        parser.exit(EXIT_USAGE, f"{parser.prog}: {error}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="sagesched_sidecar",
        description="A scheduling proxy in front of one OpenAI-compatible engine.",
        epilog="Flags outweigh the settings file. SIGTERM drains; a second SIGTERM ends at once.",
    )
    process = parser.add_argument_group("process")
    process.add_argument("--upstream", required=True, metavar="URL", help="the engine, as http://HOST:PORT")
    process.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    process.add_argument("--port", type=_port, default=8080, help="port; 0 takes a free one (default: %(default)s)")
    process.add_argument("--settings", metavar="FILE", type=Path, help="settings as YAML (default: all defaults)")
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
            help=f"{override.text} ({path}; default: {'none' if default is None else default})",
            **override.argument,
        )


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65_535:
        raise argparse.ArgumentTypeError("must be 0 to 65535")
    return int(text)


def _settings(given: argparse.Namespace) -> Settings:
    document = _document(given.settings) if given.settings else {}
    for flag, override in _OVERRIDES.items():
        section = document.setdefault(override.section, {}) if isinstance(document, dict) else None
        if flag in given and isinstance(section, dict):
            section[override.field] = getattr(given, flag)
    if not isinstance(document, dict):
        raise SettingsError(f"--settings: {given.settings} must hold sections, as `scheduling:`")
    settings = decode(document)
    seed = settings.history.seed_file
    if seed is not None and not (os.path.isfile(seed) and os.access(seed, os.R_OK)):
        raise SettingsError(f"history.seedFile: {seed} is no file that can be read")
    return settings


def _document(path: Path) -> Any:
    try:
        document = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise SettingsError(f"--settings: {path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise SettingsError(f"--settings: {path} is not YAML: {' '.join(str(error).split())}") from None
    return {} if document is None else document


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
