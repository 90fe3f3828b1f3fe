"""Write the generated files (`make gen`): docs/settings.md and docs/settings.schema.json from the settings schema, the
CRD with its page and its copy in the chart from the operator's types, and the wire package from proto/.

`--check` writes nothing and ends with 1 when a file is stale, or is in the wire package and not generated.
"""

import inspect
import json
import sys
import types
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from crd import chart_template, crd_yaml
from crd import page as crd_page
from meanings import meanings
from wire import PACKAGE, wire_package

from sagesched import live, revisions, settings

ROOT = Path(__file__).resolve().parent.parent
HEAD = """# Settings

Generated from `core/sagesched/settings.py` by `make gen`; do not edit. The file is YAML or JSON; every field has a
default, an unknown one is an error, and [settings.schema.json](settings.schema.json) is its JSON schema. The sidecar
reads it with `--settings FILE` and watches it ([settings-live.md](settings-live.md)); a field marked with an asterisk
changes only at a restart.
"""
TABLE = "| field | value | default | meaning |\n|---|---|---|---|\n"


def main() -> int:
    """Write or check; the exit status."""
    check = sys.argv[1:] == ["--check"]
    texts = copies()
    stale = [name for name, text in texts.items() if not _same(ROOT / name, text)]
    for name in stale:
        if check:
            print(f"{name} is stale; run: make gen", file=sys.stderr)
        else:
            (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / name).write_text(texts[name], encoding="utf-8")
            print(f"written: {name}")
    foreign = [path for path in (ROOT / "proto" / PACKAGE).rglob("*.py*") if _is_foreign(path, texts)]
    for path in foreign:
        print(f"{path.relative_to(ROOT)} is not generated; remove it", file=sys.stderr)
    return 1 if foreign or (check and stale) else 0


def copies() -> dict[str, str]:
    """Each generated file's name and text."""
    schema = json.dumps(_schema(), indent=2) + "\n"
    return {
        "docs/settings.md": _page(),
        "docs/settings.schema.json": schema,
        "docs/crd.md": crd_page(),
        "crds/sagesched.io_sageschedpolicies.yaml": crd_yaml(),
        "charts/sagesched/templates/crd.yaml": chart_template(),
        **wire_package(ROOT),
    }


def _schema() -> dict[str, Any]:
    """A file holds settings, or two revisions of them."""
    either, components = msgspec.json.schema_components(
        [settings.Settings, revisions.Revisions], ref_template="#/$defs/{name}"
    )
    return {"anyOf": list(either), "$defs": components}


def _is_foreign(path: Path, texts: dict[str, str]) -> bool:
    return path.suffix != ".pyc" and str(path.relative_to(ROOT)) not in texts


def _same(path: Path, text: str) -> bool:
    return path.exists() and path.read_text(encoding="utf-8") == text


def _page() -> str:
    parts = [HEAD]
    for section in msgspec.structs.fields(settings.Settings):
        parts.append(f"## {section.encode_name}\n{inspect.getdoc(section.type)}\n")
        parts.append(TABLE + "".join(_rows(section.type, section.encode_name)))
    parts.append(f"### Each of scheduling.classes\n{inspect.getdoc(settings.PriorityClass)}\n")
    parts.append(TABLE + "".join(_rows(settings.PriorityClass)))
    parts.append(f"### history.server\n{inspect.getdoc(settings.HistoryServer)}\n")
    parts.append(TABLE + "".join(_rows(settings.HistoryServer)))
    for kind in (revisions.Revisions, revisions.Candidate):
        parts.append(f"### {kind.__name__}\n{inspect.getdoc(kind)}\n")
        parts.append(TABLE + "".join(_rows(kind)))
    return "\n".join(parts)


def _rows(section: type[msgspec.Struct], at: str = "") -> Iterator[str]:
    said = meanings(section)
    for field in msgspec.structs.fields(section):
        value = _value(field.type).replace("|", "\\|")
        default = "required" if field.required else _default(field.default)
        star = "*" if f"{at}.{field.encode_name}" in live.RESTART else ""
        yield f"| `{field.encode_name}`{star} | {value} | {default} | {said[field.name]} |\n"


def _value(kind: Any) -> str:
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return " or ".join(_value(part) for part in typing.get_args(kind))
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return ", ".join(f"`{name}`" for name in args)
    if origin is typing.Annotated:
        return _value(args[0]) + _bounds(args[1])
    if origin is tuple:
        return f"list of {_value(args[0])}"
    return {type(None): "nothing", str: "text", bool: "`true`, `false`", float: "number", int: "whole number"}.get(
        kind, kind.__name__
    )


def _bounds(meta: msgspec.Meta) -> str:
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<", "min_length": "at least", "max_length": "at most"}
    parts = [f"{sign} {getattr(meta, name):,}" for name, sign in signs.items() if getattr(meta, name) is not None]
    if meta.pattern:
        parts.append(f"matching `{meta.pattern}`")
    return f" ({', '.join(parts)})" if parts else ""


def _default(value: object) -> str:
    if isinstance(value, msgspec.Struct):
        return "all defaults"
    if value is None or value == ():
        return "none"
    return f"`{json.dumps(value)}`"


if __name__ == "__main__":
    sys.exit(main())
