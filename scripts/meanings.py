"""The docstrings below a struct's fields, for generated pages and schemas."""

import ast
import inspect

import msgspec


def meanings(section: type[msgspec.Struct]) -> dict[str, str]:
    """The docstring below each field. Raises KeyError later for a field without one."""
    body = ast.parse(inspect.getsource(section)).body[0]
    assert isinstance(body, ast.ClassDef)
    pairs = zip(body.body, body.body[1:], strict=False)
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairs
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }
