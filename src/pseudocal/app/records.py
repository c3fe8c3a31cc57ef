"""Typed records as JSON and TOML, checked by msgspec when they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pseudocal.arrays import InputError
from pseudocal.files import brief, replacing, what_is_at

Record = TypeVar("Record")


class _Header(msgspec.Struct):
    """What a record of any format version has."""

    format_version: Any = None


def decode_json(path: Path, kind: type[Record], what: str) -> Record:
    """Read a record from a JSON file that may come from anyone."""
    if not path.is_file():  # a pipe would never end
        raise InputError(f"{path} is not {what}: {what_is_at(path)}")
    try:
        content = path.read_bytes()
        given = msgspec.json.decode(content, type=_Header).format_version
        wanted = getattr(kind, "format_version", given)
        if isinstance(given, int) and given != wanted:
            raise InputError(
                f"{path} is not {what}: it has format version {brief(given)}, and this pseudocal "
                f"reads version {wanted}; make it again, or use the pseudocal that wrote it"
            )
        return msgspec.json.decode(content, type=kind)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path} is not {what}: {error}; restore it, or make it again") from error


def convert(content: Any, kind: type[Record], what: str) -> Record:
    """Check plain values, such as those of a TOML file, against a type.

    >>> convert({"a": [1, 2]}, dict[str, tuple[float, ...]], "settings")
    {'a': (1.0, 2.0)}
    >>> convert({"a": "x"}, dict[str, int], "settings")
    Traceback (most recent call last):
    pseudocal.arrays.InputError: settings: Expected `int`, got `str` - at `$[...]`
    """
    try:
        return msgspec.convert(content, kind, dec_hook=_path)
    except msgspec.ValidationError as error:
        raise InputError(f"{what}: {error}") from error


def encode_json(path: Path, record: Any) -> None:
    """Write a record as indented JSON; the file is complete or absent."""
    content = msgspec.json.format(msgspec.json.encode(record, enc_hook=str), indent=1)
    with replacing(path) as aside:
        aside.write_bytes(content + b"\n")


def to_plain(record: Any) -> Any:
    """A record as dictionaries, lists, texts and numbers."""
    return msgspec.to_builtins(record, enc_hook=str)


def _path(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise NotImplementedError(f"values of type {kind}")
