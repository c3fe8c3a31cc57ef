"""Answers of a person from a file; what is wrong with it is named by line."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pseudocal.app.inputs.csv_tables import NUMBER
from pseudocal.app.inputs.tables import check_regular
from pseudocal.app.jobs.kept_target import spot_name
from pseudocal.app.report.labelling import OTHER_ANSWERS, answer_labels, plain_cell
from pseudocal.arrays import InputError
from pseudocal.calibrators.answers import CANNOT_TELL, NONE_OF_THESE

NO_CLASS = dict(zip(OTHER_ANSWERS, (CANNOT_TELL, NONE_OF_THESE), strict=True))
PROBLEMS_SHOWN = 5
CLASSES_NAMED = 10


@dataclass(frozen=True)
class GivenAnswer:
    """One line of a file of answers.

    Attributes:
        line: its number, from one.
        name: the input, as the predictions call it; of a pixel, its `spot_name`.
        text: what is written as the label.

    """

    line: int
    name: str
    text: str


def answer_columns(*, pixels: bool) -> tuple[str, ...]:
    """The columns of a table of answers about inputs, or about pixels."""
    return ("file", "y", "x", "label") if pixels else ("file", "label")


def answer_lines(path: Path, *, pixels: bool = False) -> list[GivenAnswer]:
    """The lines of a table with the `answer_columns`, those without a label too."""
    check_regular(path, "a file of answers")
    wanted = answer_columns(pixels=pixels)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            rows = csv.reader(file)
            header = next(rows, [])
            if not set(wanted) <= set(header):
                got = ", ".join(header)[:200] or "an empty file"
                raise InputError(f"expected the columns {', '.join(wanted[:-1])} and label in {path}, got {got}")
            *where, said = (header.index(column) for column in wanted)
            return [
                GivenAnswer(
                    rows.line_num, _name(*(row[at] for at in where)), row[said].strip() if said < len(row) else ""
                )
                for row in rows
                if max(where) < len(row)
            ]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"expected a table of answers, got {path}: {error}") from error


def _name(file: str, *spot: str) -> str:
    """What an input is called, or a pixel.

    >>> _name("a.png"), _name("a.png", "3", " 04")
    ('a.png', 'a.png (y 3, x 4)')
    """
    return (
        spot_name(file, *(str(int(text)) if NUMBER.fullmatch(text.strip()) else text for text in spot))
        if spot
        else file
    )


def read_answers(
    path: Path, names: Sequence[str], classes: Sequence[str], *, pixels: bool = False
) -> list[tuple[GivenAnswer, int]]:
    """Each answer with its class, `CANNOT_TELL` or `NONE_OF_THESE`; lines without a label are left out.

    Args:
        path: a table with the columns `file` and `label`, and `y` and `x` of pixels.
        names: what the inputs, or the pixels, are called.
        classes: what each class is called: see `shown_classes`. Its number will do as well, and has to where two
            classes have the same name.
        pixels: whether the answers are about pixels.

    """
    known, numbers = set(names), {text: i for i, text in enumerate(answer_labels(classes))}
    what = "pixel that was kept of the target" if pixels else "input of the target"
    found: dict[str, tuple[GivenAnswer, int]] = {}
    problems, hint = [], ""
    for given in (one for one in answer_lines(path, pixels=pixels) if one.text):
        name = _as_known(given.name, known)
        label = _label(given.text, numbers)
        if name is None:
            problems.append(f"line {given.line}: {given.name[:80]!r}, which is no {what}")
        elif label is None:
            problems.append(f"line {given.line}: {given.text[:80]!r}, which is no class of the model")
            hint = f". The classes are {_listed(classes)}"
        elif name in found:
            other = found[name][0]
            how = "again" if found[name][1] == label else f"as {given.text[:80]!r} and not {other.text[:80]!r}"
            problems.append(f"line {given.line}: {name[:80]!r} {how}, which line {other.line} has already")
        else:
            found[name] = (GivenAnswer(given.line, name, given.text), label)
    if problems:
        more = f"; and {len(problems) - PROBLEMS_SHOWN} more" if len(problems) > PROBLEMS_SHOWN else ""
        listed = "; ".join(problems[:PROBLEMS_SHOWN])
        raise InputError(f"expected one answer for each input that has any in {path}, got {listed}{more}{hint}")
    if not found:
        raise InputError(f"expected at least one answer in {path}, got none")
    return list(found.values())


def shown_classes(classes: Sequence[str], count: int) -> list[str]:
    """What to call each of `count` classes: its name, or its number where names are missing.

    >>> shown_classes(["cat", "dog"], 2), shown_classes([], 2)
    (['cat', 'dog'], ['0', '1'])
    """
    return list(classes) if len(classes) == count else [str(i) for i in range(count)]


def _listed(classes: Sequence[str]) -> str:
    """The names of the first classes.

    >>> _listed(["cat", "dog"])
    "'cat', 'dog'"
    """
    more = f", ... ({len(classes):,} in all)" if len(classes) > CLASSES_NAMED else ""
    return ", ".join(repr(name[:80]) for name in classes[:CLASSES_NAMED]) + more


def _label(text: str, numbers: dict[str, int]) -> int | None:
    """The class that an answer stands for; names come before numbers, and both before the words for no class.

    >>> _label("dog", {"cat": 0, "dog": 1}), _label("0", {"cat": 0, "dog": 1}), _label("2", {"cat": 0, "dog": 1})
    (1, 0, None)
    """
    name = _as_known(text, numbers)
    if name is not None:
        return numbers[name]
    if NUMBER.fullmatch(text) and 0 <= int(text) < len(numbers):
        return int(text)
    return NO_CLASS.get(text.lower())


def _as_known(text: str, known: set[str] | dict[str, int]) -> str | None:
    """A name as it is known: it may have an apostrophe before it, so that no spreadsheet takes it for a formula."""
    return next((name for name in (plain_cell(text), text) if name in known), None)
