"""Dataclasses as JSON values, and back with every type checked: a damaged file ends in one clear error."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from pseudocal.arrays import InputError

LARGEST_NUMBER, LARGEST_WHOLE = 1e300, 2**63  # of the numbers that a report may hold; NaN and inf are not among them
WORDS = {str: "text", int: "a whole number", float: "a finite number", bool: "true or false", NoneType: "null"}


def to_json(value: Any) -> Any:
    """A dataclass, with all that it holds, as JSON values.

    >>> from pseudocal.app.report.sections import ClassShare
    >>> to_json((ClassShare("cat", 0.75), None))
    [{'name': 'cat', 'share': 0.75}, None]
    """
    if is_dataclass(value):
        return {field.name: to_json(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {key: to_json(part) for key, part in value.items()}
    return [to_json(part) for part in value] if isinstance(value, list | tuple) else value


def from_json(kind: Any, value: Any, where: str) -> Any:
    """A value of the type `kind` from JSON values.

    >>> from_json(tuple[float, ...], [1, 0.5], "edges")
    (1.0, 0.5)
    >>> from_json(dict[str, int], {"inputs": "many"}, "data")
    Traceback (most recent call last):
    pseudocal.arrays.InputError: expected a whole number as data.inputs, got 'many'

    Args:
        kind: a dataclass, `str`, `int`, `float`, `bool`, `Any`, or a `Literal`, an optional, a tuple or a dictionary.
        value: what `json.loads` gave.
        where: the name of the value, for errors.

    """
    if kind is Any:
        return value
    if is_dataclass(kind):
        return _dataclass(kind, value, where)
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Literal:
        return value if _among(value, parts) else _refuse("one of " + ", ".join(map(repr, parts)), value, where)
    if origin is UnionType:
        [other] = [part for part in parts if part is not NoneType]
        return None if value is None else from_json(other, value, where)
    if origin is tuple:
        return _tuple(parts, value, where)
    if origin is dict:
        pairs = value.items() if isinstance(value, dict) else _refuse("an object", value, where)
        return {key: from_json(parts[1], part, f"{where}.{key}") for key, part in pairs}
    return _plain(kind, value, where)


def _dataclass(kind: Any, value: Any, where: str) -> Any:
    hints = _hints(kind)
    if not isinstance(value, dict):
        _refuse("an object", value, where)
    if missing := [name for name in hints if name not in value]:
        raise InputError(f"expected {where} with the field {missing[0]!r}, got none")
    if unknown := [name for name in value if name not in hints]:
        raise InputError(f"expected {where} with the fields {', '.join(hints)}, got {unknown[0]!r}")
    return kind(**{name: from_json(hint, value[name], f"{where}.{name}") for name, hint in hints.items()})


@cache
def _hints(kind: Any) -> dict[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _tuple(parts: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    many = parts[-1] is Ellipsis
    if not isinstance(value, list) or not (many or len(value) == len(parts)):
        _refuse("a list" if many else f"a list of {len(parts)}", value, where)
    kinds = [parts[0]] * len(value) if many else parts
    return tuple(
        from_json(kind, part, f"{where}[{i}]") for i, (kind, part) in enumerate(zip(kinds, value, strict=True))
    )


def _plain(kind: type, value: Any, where: str) -> Any:
    """Text, a number or a truth value; a whole number will do for a float."""
    number = type(value) in (int, float) and abs(value) <= (LARGEST_NUMBER if kind is float else LARGEST_WHOLE)
    if kind is float and number:
        return float(value)
    fits = type(value) is kind and kind is not float and (kind is not int or number)
    return value if fits else _refuse(WORDS[kind], value, where)


def _among(value: Any, options: tuple[Any, ...]) -> bool:
    return any(type(value) is type(option) and value == option for option in options)


def _refuse(expected: str, value: Any, where: str) -> Any:
    shown = repr(value)
    raise InputError(f"expected {expected} as {where}, got {shown if len(shown) <= 80 else shown[:77] + '...'}")
