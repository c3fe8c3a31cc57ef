"""Texts and other descriptions of inputs: the columns of a table, or the lines of a text file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.choices import JSONL, read_choices
from pseudocal.app.inputs.images import IMAGE_SUFFIXES
from pseudocal.app.inputs.sets import InputSet
from pseudocal.app.inputs.tables import TABLES, read_columns, read_text
from pseudocal.arrays import InputError

# the column of a table, if the user names none; the lines of a text file are called so too
USUAL_COLUMN = "text"
NO_INPUTS = ("file", "label")  # columns that name the inputs and say what they are


def read_lines(path: Path, what: str = "a text file") -> list[str]:
    """Read the lines of a text file in UTF-8; line breaks at its end do not count."""
    text = read_text(path, what).rstrip("\r\n")
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    if lines == [""]:
        raise InputError(f"expected {what}, got {path}, which is empty")
    if "\0" in text:
        raise InputError(f"expected {what}, got {path}, which is not text")
    return lines


def read_descriptions(path: Path) -> dict[str, Any]:
    """Read the columns of a table by name, or the lines of a text file as `text`.

    Of a JSONL file of multiple-choice questions: the question and its options.
    """
    if path.suffix.lower() == JSONL:
        return dict(read_choices(path).columns)
    if path.suffix.lower() in TABLES:
        return read_columns(path)
    return {"text": read_lines(path)}


@dataclass(frozen=True)
class TextSet(InputSet):
    """Texts, named by their number.

    >>> TextSet(["good", "bad"]).read(1)
    array('bad', dtype=object)
    """

    texts: list[str]
    column: str | None = None  # of a table; None for the lines of a file

    def __len__(self) -> int:
        return len(self.texts)

    def read(self, i: int) -> NDArray[Any]:
        """Return text i; a batch of texts is an array of Python strings."""
        return np.array(self.texts[i], dtype=object)


def open_texts(path: Path, column: str | None) -> TextSet:
    """Open a column of a table, or a text file with one text per line.

    Without a name, the column is `text`, or the only one that holds texts.
    """
    described = read_descriptions(path)
    is_table = path.suffix.lower() in TABLES
    if column is None or not is_table:
        column = _usual_column(described)
    if column not in described:
        raise InputError(
            f"{path} has no column {column!r}, but {', '.join(described)}",
            setting="text",
            value="NAME",
        )
    texts = ["" if text is None else text for text in described[column]]
    other = next((text for text in texts if not isinstance(text, str)), None)
    if other is not None:
        raise InputError(f"expected texts in column {column!r} of {path}, got {other!r}")
    return TextSet(texts, column if is_table else None)


def _usual_column(described: dict[str, Any]) -> str:
    """The column of texts of a table, if the user names none.

    >>> _usual_column({"stars": np.array([5]), "review": np.array(["Nice."], dtype=object)})
    'review'
    """
    others = [name for name in described if str(name).strip().lower() not in NO_INPUTS]
    # the lines of a file are a list, a column of a table is an array
    texts = [
        name
        for name in others
        if isinstance(described[name], list) or described[name].dtype.kind in "OU"
    ]
    if USUAL_COLUMN not in described and len(texts) == 1:
        return texts[0]
    return USUAL_COLUMN


def refuse_texts(data: str) -> None:
    """Refuse a text file whose first line is no path: it may hold texts."""
    path = Path(data)
    if data == "-" or not path.is_file() or path.suffix.lower() in IMAGE_SUFFIXES:
        return
    first = read_lines(path, "a text file of paths")[0]
    if not (path.parent / first).exists() and Path(first).suffix.lower() not in IMAGE_SUFFIXES:
        raise InputError(
            f"expected a list of images, one path per line, got {path}, which begins with "
            f"{first[:60]!r}; if these are texts, name them",
            setting="text",
            value='"text"',
        )
