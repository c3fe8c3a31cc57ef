"""Answers of a person from a file; what is wrong with it is named by line."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pseudocal.app.inputs.tables import NUMBER, check_regular, plain_cell
from pseudocal.app.jobs.kept_target import spot_name
from pseudocal.app.report.labelling import OTHER_ANSWERS, answer_labels
from pseudocal.arrays import InputError
from pseudocal.calibrators.labels import CANNOT_TELL, NONE_OF_THESE

NO_CLASS = dict(zip(OTHER_ANSWERS, (CANNOT_TELL, NONE_OF_THESE), strict=True))
OTHER_WAYS = " and ".join(f'"{answer}"' for answer in OTHER_ANSWERS) + " are answers too"
SEPARATORS = (",", ";", "\t")
PROBLEMS_SHOWN = 5
CLASSES_SHOWN, NAMES_SHOWN = 10, 3


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
    """The lines of a table with the `answer_columns`, those without a label too.

    Spreadsheets of some languages put semicolons or tabs between the cells: the names of the
    columns tell.
    """
    text = _text_of(path)
    wanted = answer_columns(pixels=pixels)
    problems = []
    for separator in SEPARATORS:
        try:
            rows = _filled_rows(text, separator)
        except csv.Error as error:  # with another separator it may be a table
            problems.append(error)
            continue
        header = [cell.strip().lower() for cell in rows[0][1]] if rows else []
        if all(header.count(column) == 1 for column in wanted):
            *where, said = (header.index(column) for column in wanted)
            return [
                GivenAnswer(line, _name(*(row[at] for at in where)), row[said].strip())
                for line, row in rows[1:]
            ]
    if problems:
        raise InputError(
            f"expected a table of answers, got {path}: {problems[0]} (a stray quotation mark?)"
        )
    got = text.strip().split("\n")[0].strip()[:200] or "an empty file"
    raise InputError(
        f"expected the columns {', '.join(wanted[:-1])} and label in {path}, got {got}"
    )


def _text_of(path: Path) -> str:
    check_regular(path, "a file of answers")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise InputError(
            f'expected a table of answers in UTF-8, got {path}: save it as "CSV UTF-8"'
        ) from error


def _filled_rows(text: str, separator: str) -> list[tuple[int, list[str]]]:
    r"""The rows that are not blank, each with the number of its line.

    All have as many cells as the longest.

    >>> _filled_rows("sep=;\n\nfile;label\na.png;cat\nb.png\n", ";")
    [(3, ['file', 'label']), (4, ['a.png', 'cat']), (5, ['b.png', ''])]
    """
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    rows = [(reader.line_num, row) for row in reader if any(cell.strip() for cell in row)]
    if rows and rows[0][1][0].startswith("sep="):  # how a spreadsheet is told the separator
        rows = rows[1:]
    cells = max((len(row) for _, row in rows), default=0)
    return [(line, row + [""] * (cells - len(row))) for line, row in rows]


def _name(file: str, *spot: str) -> str:
    """What an input is called, or a pixel.

    >>> _name("a.png"), _name("a.png", "3", " 04")
    ('a.png', 'a.png (y 3, x 4)')
    """
    if not spot:
        return file
    return spot_name(
        file, *(str(int(text)) if NUMBER.fullmatch(text.strip()) else text for text in spot)
    )


def read_answers(
    path: Path, names: Sequence[str], classes: Sequence[str], *, pixels: bool = False
) -> list[tuple[GivenAnswer, int]]:
    """Each answer with its class, `CANNOT_TELL` or `NONE_OF_THESE`.

    Lines without a label are left out.

    Args:
        path: a table with the columns `file` and `label`, and `y` and `x` of pixels.
        names: what the inputs, or the pixels, are called.
        classes: what each class is called: see `shown_classes`. Its number will do as well, and has
            to where two classes have the same name.
        pixels: whether the answers are about pixels.

    """
    known = KnownNames.of(names)
    labels = KnownNames.of(answer_labels(classes))
    what = "pixel that was kept of the target" if pixels else "input of the target"
    found: dict[str, tuple[GivenAnswer, int]] = {}
    problems = []
    hints = {}
    for given in (one for one in answer_lines(path, pixels=pixels) if one.text):
        name = known.find(given.name)
        label = _label(given.text, labels)
        if name is None:
            problems.append(f"line {given.line}: {given.name[:80]!r}, which is no {what}")
            hints["names"] = f". They are called {_listed(names, NAMES_SHOWN)}"
        elif label is None:
            problems.append(
                f"line {given.line}: {given.text[:80]!r}, which is no class of the model"
            )
            hints["classes"] = f". The classes are {_listed(classes, CLASSES_SHOWN)}; {OTHER_WAYS}"
        elif name in found:
            other = found[name][0]
            how = (
                "again"
                if found[name][1] == label
                else f"as {given.text[:80]!r} and not {other.text[:80]!r}"
            )
            problems.append(
                f"line {given.line}: {name[:80]!r} {how}, which line {other.line} has already"
            )
        else:
            found[name] = (GivenAnswer(given.line, name, given.text), label)
    if problems:
        more = (
            f"; and {len(problems) - PROBLEMS_SHOWN} more" if len(problems) > PROBLEMS_SHOWN else ""
        )
        listed = "; ".join(problems[:PROBLEMS_SHOWN])
        hint = "".join(hints.values())
        raise InputError(
            f"expected one answer for each input that has any in {path}, got {listed}{more}{hint}"
        )
    if not found:
        raise InputError(f"expected at least one answer in {path}, got none")
    return list(found.values())


def shown_classes(classes: Sequence[str], count: int) -> list[str]:
    """What to call each of `count` classes: its name, or its number where names are missing.

    >>> shown_classes(["cat", "dog"], 2), shown_classes([], 2)
    (['cat', 'dog'], ['0', '1'])
    """
    return list(classes) if len(classes) == count else [str(i) for i in range(count)]


def _listed(names: Sequence[str], most: int) -> str:
    """The first of many names.

    >>> _listed(["cat", "dog", "eel"], 2)
    "'cat', 'dog', ... (3 in all)"
    """
    more = f", ... ({len(names):,} in all)" if len(names) > most else ""
    return ", ".join(repr(name[:80]) for name in names[:most]) + more


def _label(text: str, labels: KnownNames) -> int | None:
    """The class that an answer stands for.

    Names come before numbers, and both before the words for no class.

    Tables of numbers with empty cells are often saved with fractions: `1.0` is class 1.

    >>> labels = KnownNames.of(["cat", "dog"])
    >>> _label("dog", labels), _label("0", labels), _label("1.0", labels), _label("2", labels), _label("Dog", labels)
    (1, 0, 1, None, 1)
    """
    exact = labels.exactly(text)
    if exact is not None:
        return labels.numbers[exact]
    number = text.removesuffix(".0")
    if NUMBER.fullmatch(number) and 0 <= int(number) < len(labels.numbers):
        return int(number)
    other = NO_CLASS.get(_loosely(text))
    alike = labels.find(text)
    return other if alike is None or other is not None else labels.numbers[alike]


@dataclass(frozen=True)
class KnownNames:
    """Names that a person refers to, and may write a little differently.

    >>> known = KnownNames.of(["a.png", "B.png", "b.png", "=c.png"])
    >>> known.find("A.png "), known.find("b.png"), known.find("'=c.png")
    ('a.png', 'b.png', '=c.png')
    >>> known.find("B.PNG")                                       # of two that differ in this alone, neither

    Attributes:
        numbers: each name with its number.
        alike: the names that differ from all others in more than spaces and case, by what is left
            without these.

    """

    numbers: dict[str, int]
    alike: dict[str, str]

    @classmethod
    def of(cls, names: Iterable[str]) -> KnownNames:
        """Number different names."""
        numbers = {name: i for i, name in enumerate(names)}
        count = Counter(map(_loosely, numbers))
        return cls(
            numbers, {_loosely(name): name for name in numbers if count[_loosely(name)] == 1}
        )

    def exactly(self, text: str) -> str | None:
        """The name that is written so.

        An apostrophe before it may keep a spreadsheet from computing it.
        """
        return next((name for name in (plain_cell(text), text) if name in self.numbers), None)

    def find(self, text: str) -> str | None:
        """The name that is written so, or else the only one that differs in spaces and case alone."""
        exact = self.exactly(text)
        alike = (self.alike.get(_loosely(way)) for way in (plain_cell(text.strip()), text))
        return (
            exact if exact is not None else next((name for name in alike if name is not None), None)
        )


def _loosely(text: str) -> str:
    """A name without what people get wrong: capital letters, and spaces before, after and twice.

    >>> _loosely(" Cannot  tell")
    'cannot tell'
    """
    return " ".join(text.casefold().split())
