"""A hash of the code of a plugin, by which a store notices that it was edited."""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any


def hash_source(registered: Any) -> str:
    """Hash a function or class, with all that it names in its file.

    Comments, layout and other definitions in the file make no difference. Neither does what the
    file imports.

    Args:
        registered: the function or class.

    Returns:
        The hash; "" if there is no source code.

    """
    module = sys.modules.get(getattr(registered, "__module__", None) or "")
    file = getattr(module, "__file__", None)
    name = getattr(registered, "__qualname__", None)
    if file is None or name is None:
        return ""
    try:
        statements = ast.parse(Path(file).read_bytes()).body
    except (OSError, SyntaxError, ValueError):  # compiled, or in an archive
        return ""
    found = _needed_for(name, statements) or statements  # a lambda may depend on any of them
    text = "\n".join(ast.dump(statement) for statement in found)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _needed_for(name: str, statements: Sequence[ast.stmt]) -> list[ast.stmt]:
    """List the top-level statements that define a name, and the names in these, and so on."""
    wanted = {name}
    found: set[int] = set()
    while True:
        new = {
            number
            for number, statement in enumerate(statements)
            if number not in found and wanted & set(_defined(statement))
        }
        if not new:
            return [statements[number] for number in sorted(found)]
        found |= new
        for number in new:
            nodes = ast.walk(statements[number])
            wanted |= {node.id for node in nodes if isinstance(node, ast.Name)}


def _defined(statement: ast.stmt) -> Iterator[str]:
    """List the names that a top-level statement defines or changes."""
    definitions = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    # a definition changes nothing outside of itself
    nodes = [statement] if isinstance(statement, definitions) else ast.walk(statement)
    for node in nodes:
        if isinstance(node, definitions):
            yield node.name
        elif isinstance(node, ast.alias):
            yield (node.asname or node.name).split(".")[0]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            yield _root(node.value.func)  # TABLE.update(...)
        elif not isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
            yield _root(node)


def _root(node: ast.AST) -> str:
    """The name at the beginning of an expression such as `TABLE["a"].b`; "" if there is none."""
    while isinstance(node, ast.Attribute | ast.Subscript | ast.Call):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""
