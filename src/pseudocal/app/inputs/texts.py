"""Texts and other descriptions of inputs: the columns of a table, or the lines of a text file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pseudocal.app.inputs.tables import TABLES, check_regular, read_columns
from pseudocal.arrays import InputError


def read_lines(path: Path, what: str = "a text file") -> list[str]:
    """Read the lines of a text file in UTF-8; line breaks at its end do not count.

    Args:
        path: the file.
        what: what the file should hold, for the error message.

    """
    check_regular(path, what)
    try:
        text = path.read_text(encoding="utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise InputError(f"expected {what} in UTF-8, got {path}, which is not") from error
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if "\0" in text or lines == [""]:
        raise InputError(f"expected {what}, got {path}, which is {'not text' if text else 'empty'}")
    return lines


def read_descriptions(path: Path) -> dict[str, Any]:
    """Read what describes each input: the columns of a table by name, or `text` for the lines of a text file."""
    return read_columns(path) if path.suffix.lower() in TABLES else {"text": read_lines(path)}
