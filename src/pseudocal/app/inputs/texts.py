"""Texts and other descriptions of inputs: the columns of a table, or the lines of a text file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.tables import TABLES, check_regular, read_columns
from pseudocal.arrays import InputError

USUAL_COLUMN = "text"  # of a table, if the user names none; the lines of a text file are called so too


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


@dataclass(frozen=True)
class TextSet:
    """Texts, named by their number.

    >>> TextSet(["good", "bad"]).read(1)
    array('bad', dtype='<U3')

    Attributes:
        texts: the texts.

    """

    texts: list[str]

    def __len__(self) -> int:
        return len(self.texts)

    def name(self, i: int) -> str:
        """Return the number of the text as text."""
        return str(i)

    def read(self, i: int) -> NDArray[Any]:
        """Return text i; a batch of texts is an array of them."""
        return np.array(self.texts[i])

    def picture(self, i: int) -> Path | None:
        """Return None: a text is not a picture."""
        return None


def open_texts(path: Path, column: str | None) -> TextSet:
    """Open a column of a table, or a text file with one text per line.

    Args:
        path: the file.
        column: the name of the column; None for `text`.

    """
    described = read_descriptions(path)
    name = USUAL_COLUMN if column is None or path.suffix.lower() not in TABLES else column
    if name not in described:
        raise InputError(
            f"expected the column of texts in {path}, text=NAME, got {name!r}, with columns {', '.join(described)}"
        )
    texts = ["" if text is None else text for text in list(described[name])]
    other = next((text for text in texts if not isinstance(text, str)), None)
    if other is not None:
        raise InputError(f"expected texts in column {name!r} of {path}, got {other!r}")
    return TextSet(texts)
