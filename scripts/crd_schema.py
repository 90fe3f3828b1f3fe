"""msgspec structs as the structural schema of a CRD: bounds, defaults and descriptions of every field."""

import inspect
import types
import typing
from collections.abc import Collection
from typing import Any

import msgspec
from meanings import meanings

Schema = dict[str, Any]

MAX_TEXT = 4096
"""Of a text without a bound of its own: the API server reckons the cost of rules by it."""
_BOUNDS = {"ge": "minimum", "gt": "minimum", "le": "maximum", "lt": "maximum", "pattern": "pattern"}
_SIZES = {"array": ("minItems", "maxItems"), "object": ("minProperties", "maxProperties")}
_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    float: {"type": "number"},
    int: {"type": "integer"},
    Any: {},
}


def struct_schema(section: type[msgspec.Struct], *, without: Collection[str] = (), defaults: bool = True) -> Schema:
    """The object's schema. `without`: fields left out, by their paths in files. `defaults`: the API server fills absent
    fields in; else descriptions say the default, so that whoever merges can tell what was set."""
    said, required, properties = meanings(section), [], {}
    for field in msgspec.structs.fields(section):
        if field.encode_name in without:
            continue
        inside = {path.partition(".")[2] for path in without if path.startswith(f"{field.encode_name}.")}
        if inside:
            schema = struct_schema(_struct_in(field.type), without=inside, defaults=defaults)
        else:
            schema = schema_of(field.type, defaults=defaults)
        words = said[field.name]
        if field.required:
            required.append(field.encode_name)
        elif defaults:
            schema |= _default(field.default)
        else:
            words += _default_in_words(field.default)
        properties[field.encode_name] = {"description": words} | schema
    found: Schema = {"type": "object", "properties": properties}
    return found | ({"required": required} if required else {})


def _struct_in(kind: Any) -> type[msgspec.Struct]:
    """The struct that a field holds, or may hold."""
    parts = (kind, *typing.get_args(kind))
    return next(part for part in parts if inspect.isclass(part) and issubclass(part, msgspec.Struct))


def schema_of(kind: Any, *, defaults: bool) -> Schema:
    """The schema of any type that the structs use; None beside another type means that the field may be absent."""
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return _union([part for part in typing.get_args(kind) if part is not type(None)], defaults=defaults)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return {"type": "string", "enum": list(args)}
    if origin is typing.Annotated:
        return _bounded(schema_of(args[0], defaults=defaults), args[1:])
    if origin is tuple:
        return _listed(schema_of(args[0], defaults=defaults), args[0])
    if origin is dict:
        values = schema_of(args[1], defaults=defaults)
        return {"type": "object"} | ({"additionalProperties": values} if values else {})
    if inspect.isclass(kind) and issubclass(kind, msgspec.Struct):
        return struct_schema(kind, defaults=defaults)
    found = dict(_PLAIN[kind])
    return found | ({"maxLength": MAX_TEXT} if kind is str else {})


def _union(parts: list[Any], *, defaults: bool) -> Schema:
    """Several types together are a quantity's, whose annotation says the rest."""
    return schema_of(parts[0], defaults=defaults) if len(parts) == 1 else {}


def _listed(items: Schema, kind: Any) -> Schema:
    """The order of a list counts, so all of it has one owner; classes are told apart by their names."""
    found: Schema = {"type": "array", "items": items, "x-kubernetes-list-type": "atomic"}
    if inspect.isclass(kind) and issubclass(kind, msgspec.Struct) and "name" in items.get("required", ()):
        found |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    return found


def _bounded(schema: Schema, metas: tuple[msgspec.Meta, ...]) -> Schema:
    for meta in metas:
        for name, word in _BOUNDS.items():
            if getattr(meta, name) is not None:
                schema[word] = getattr(meta, name)
        schema |= {"exclusiveMinimum": True} if meta.gt is not None else {}
        schema |= {"exclusiveMaximum": True} if meta.lt is not None else {}
        at_least, at_most = _SIZES.get(schema.get("type", ""), ("minLength", "maxLength"))
        schema |= {at_least: meta.min_length} if meta.min_length is not None else {}
        schema |= {at_most: meta.max_length} if meta.max_length is not None else {}
        extra = dict(meta.extra_json_schema or {})
        if "x-kubernetes-list-map-keys" in extra:
            schema["x-kubernetes-list-type"] = "map"
        schema |= extra
    if schema.get("type") == "integer":
        schema["format"] = "int32" if schema.get("maximum", 1 << 31) < 1 << 31 else "int64"
    return schema


def _default(value: object) -> Schema:
    if isinstance(value, msgspec.Struct):
        return {"default": _set_fields(value)}
    if value in (None, (), "") or value is msgspec.NODEFAULT:
        return {}
    return {"default": msgspec.to_builtins(value)}


def _set_fields(value: msgspec.Struct) -> dict[str, Any]:
    """What differs from the struct's own defaults; the API server fills in the rest."""
    return {
        field.encode_name: msgspec.to_builtins(getattr(value, field.name))
        for field in msgspec.structs.fields(value)
        if getattr(value, field.name) != field.default and getattr(value, field.name)
    }


def _default_in_words(value: object) -> str:
    if value in (None, (), "") or value is msgspec.NODEFAULT or isinstance(value, msgspec.Struct):
        return ""
    return f" Default: {msgspec.json.encode(value).decode()}."
