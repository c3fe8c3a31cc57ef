"""Read a person's labels from a file; problems are named by line."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from pseudocal.app.inputs.tables import NUMBER, check_regular, plain_cell
from pseudocal.app.job import Sampling
from pseudocal.app.run import LABEL_TABLE, Run, pixel_name
from pseudocal.app.thresholds import ThresholdDraw
from pseudocal.arrays import InputError
from pseudocal.calibrators.labels import (
    CANNOT_TELL,
    NONE_OF_THESE,
    LabelSample,
    RowNumbers,
    rows_of_any_logits,
)
from pseudocal.files import own_file

NOT_A_CLASS = ("cannot tell", "none of these")  # labels that are no class
NO_CLASS = dict(zip(NOT_A_CLASS, (CANNOT_TELL, NONE_OF_THESE), strict=True))
NO_NAMES = "No class names are known: name them with pseudocal label OUT --classes FILE"
OTHER_LABELS = " and ".join(f'"{label}"' for label in NOT_A_CLASS) + " are allowed too"
SAMPLING_COLUMN = "sampling"  # how an input was drawn, if it was drawn to decide on a threshold
SEPARATORS = (",", ";", "\t")
PROBLEMS_SHOWN = 5
CLASSES_SHOWN = 10
NAMES_SHOWN = 3


@dataclass(frozen=True)
class LabelLine:
    """One line of a labels file."""

    line: int  # from one
    name: str  # the input, as the predictions call it; of a pixel, its `pixel_name`
    text: str  # what is written as the label
    sampling: str = ""  # how the input was drawn, if the file says so


def label_columns(*, pixels: bool) -> tuple[str, ...]:
    """The columns of a table of labels of inputs, or of pixels."""
    return ("file", "y", "x", "label") if pixels else ("file", "label")


def label_lines(path: Path, *, pixels: bool = False) -> list[LabelLine]:
    """The lines of a table with the `label_columns`, those without a label too.

    Spreadsheets of some languages put semicolons or tabs between the cells: the names of the
    columns tell.
    """
    text = _text_of(path)
    wanted = label_columns(pixels=pixels)
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
            drawn = header.index(SAMPLING_COLUMN) if SAMPLING_COLUMN in header else None
            return [
                LabelLine(
                    line,
                    _name(*(row[at] for at in where)),
                    row[said].strip(),
                    "" if drawn is None else row[drawn].strip(),
                )
                for line, row in rows[1:]
            ]
    if problems:
        raise InputError(
            f"expected a table of labels, got {path}: {problems[0]} (a stray quotation mark?)"
        )
    got = text.strip().split("\n")[0].strip()[:200] or "an empty file"
    raise InputError(
        f"expected the columns {', '.join(wanted[:-1])} and label in {path}, got {got}"
    )


def _text_of(path: Path) -> str:
    check_regular(path, "a labels file")
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise InputError(
            f'expected a table of labels in UTF-8, got {path}: save it as "CSV UTF-8"'
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
    return pixel_name(
        file, *(str(int(text)) if NUMBER.fullmatch(text.strip()) else text for text in spot)
    )


def read_label_lines(
    path: Path, names: Sequence[str], classes: Sequence[str], *, pixels: bool = False
) -> list[tuple[LabelLine, int]]:
    """Each label with its class, `CANNOT_TELL` or `NONE_OF_THESE`; lines without one are skipped.

    Args:
        path: a table with the columns `file` and `label`, and `y` and `x` of pixels.
        names: what the inputs, or the pixels, are called.
        classes: what each class is called: see `shown_classes`. Its number will do as well, and has
            to where two classes have the same name.
        pixels: whether the labels are of pixels.

    """
    known = KnownNames.of(names)
    labels = KnownNames.of(label_texts(classes))
    shown = {name: i for i, name in enumerate(told_apart(classes))}
    counts = Counter(classes)
    what = "pixel that was kept of the target" if pixels else "input of the target"
    found: dict[str, tuple[LabelLine, int]] = {}
    problems = []
    hints = {}
    for given in label_lines(path, pixels=pixels):
        if not given.text:
            continue
        text = repr(given.text[:80])
        name = known.find(given.name)
        label = shown.get(given.text, _label(given.text, labels))
        if name is None:
            problem = f"{given.name[:80]!r}, which is no {what}"
            hints["names"] = f". They are called {_listed(names, NAMES_SHOWN)}"
        elif label is None and counts[given.text] > 1:
            several = [name for name, own in zip(shown, classes, strict=True) if own == given.text]
            problem = f"{text}, which {len(several)} classes are called"
            hints[given.text] = f". Write {_listed(several, CLASSES_SHOWN)}"
        elif label is None:
            problem = f"{text}, which is no class of the model"
            hints["classes"] = (
                f". The classes are {_listed(classes, CLASSES_SHOWN)}; {OTHER_LABELS}"
            )
            if list(classes) == list(map(str, range(len(classes)))):
                hints["unnamed"] = f". {NO_NAMES}"
        elif name in found:
            other, _ = found[name]
            two = f"{text} here and {other.text[:80]!r} in line {other.line}"
            problem = f"{name[:80]!r} has two labels, {two} (keep one of them)"
        else:
            found[name] = (replace(given, name=name), label)
            continue
        problems.append(f"line {given.line}: {problem}")
    if len(problems) > PROBLEMS_SHOWN:
        problems[PROBLEMS_SHOWN:] = [f"and {len(problems) - PROBLEMS_SHOWN} more"]
    if problems:
        got = "; ".join(problems) + "".join(hints.values())
        raise InputError(f"cannot use {path}: {got}")
    if not found:
        raise InputError(f"expected at least one label in {path}, got none")
    return list(found.values())


def check_label_file(
    path: Path, names: Sequence[str] | None, classes: Sequence[str], count: int
) -> None:
    """Refuse a labels file before a long run.

    There are no names of inputs if labels are of pixels, which are not drawn yet.
    """
    if names is None:
        label_lines(path, pixels=True)
    else:
        read_label_lines(path, names, shown_classes(classes, count))


def read_labels(path: Path, run: Run, sampling: Sampling) -> LabelSample:
    """Read a person's labels of a run.

    Args:
        path: a table with the columns `file` and `label`, and `y` and `x` of pixels.
        run: the run.
        sampling: how the inputs were drawn: "stratified" by `label`, or "random" by someone else.

    """
    names = run.row_names
    classes = shown_classes(run.record.classes, run.logits.shape[1])
    given = read_label_lines(path, names, classes, pixels=run.pixels is not None)
    check_unique(run.record.names, path)
    number = {name: i for i, name in enumerate(names)}
    lines = {number[line.name]: line for line, _ in given}
    labels = {number[line.name]: label for line, label in given}
    draw = _threshold_draw(lines.values(), path)
    drawn = {} if draw else _drawn_for_threshold(run)
    if drawn and all(line.name in drawn for line in lines.values()):
        draw = drawn[given[0][0].name]
    pool = None
    if draw is not None:
        sampling = "random"
        chosen, pool = draw.rows(run, len(lines))
        _check_chosen(lines, chosen.tolist(), run, path)
    elif sampling == "stratified":
        skipped = _skipped(lines, run, path, may_be_random=not drawn)
        labels |= dict.fromkeys(skipped, CANNOT_TELL)
    rows = sorted(labels)
    return LabelSample(rows, [labels[row] for row in rows], sampling, pool=pool)


def _threshold_draw(lines: Iterable[LabelLine], path: Path) -> ThresholdDraw | None:
    """How the inputs were drawn to decide on a threshold; None if they were not."""
    draws = {ThresholdDraw.parse(line.sampling) for line in lines}
    if len(draws) > 1:
        raise InputError(
            f"expected labels drawn in one way in {path}, got several in the column "
            f"{SAMPLING_COLUMN}: use a separate file for each"
        )
    return draws.pop()


def _drawn_for_threshold(run: Run) -> dict[str, ThresholdDraw]:
    """The inputs that the run's own table to label has for a threshold, and how they were drawn."""
    try:
        lines = label_lines(own_file(run.folder, LABEL_TABLE))
    except (InputError, OSError):  # there is none, or it is damaged
        return {}
    known = KnownNames.of(run.row_names)
    found = {known.find(line.name): ThresholdDraw.parse(line.sampling) for line in lines}
    return {name: draw for name, draw in found.items() if name is not None and draw is not None}


def check_unique(names: Sequence[str], where: Path) -> None:
    """Refuse inputs that share a name: their labels could not be told apart."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(f"two inputs of {where} are called {twice[0]!r}: give them unique names")


def chosen_rows(run: Run, n: int, sampling: Sampling) -> RowNumbers:
    """The rows for a person to label; more rows begin with the same ones.

    Args:
        run: the run.
        n: how many rows.
        sampling: "stratified" as `rows_to_label` spreads them, or "random".

    """
    if sampling == "stratified":
        return rows_of_any_logits(run.logits, n, groups=run.groups)
    if not 1 <= n <= len(run.logits):
        raise InputError(
            f"expected a number of inputs to label from 1 to {len(run.logits)}, got {n}"
        )
    return np.random.default_rng(0).permutation(len(run.logits))[:n]


def _first_strange(lines: dict[int, LabelLine], chosen: Sequence[int]) -> LabelLine | None:
    """The first label in the file of an input that was not chosen; None if all were."""
    others = [lines[row] for row in lines.keys() - set(chosen)]
    return min(others, key=lambda line: line.line, default=None)


def _check_chosen(lines: dict[int, LabelLine], chosen: Sequence[int], run: Run, path: Path) -> None:
    """Refuse labels that are no sample: others than those of the first inputs of the page."""
    strange = _first_strange(lines, chosen)
    if strange is None:
        return
    missing = run.row_names[next(row for row in chosen if row not in lines)]
    raise InputError(
        f"{path} has no label for {missing!r}, but one for {strange.name!r} in line "
        f"{strange.line}, which is not among the first {len(lines)} inputs to label. Put all labels "
        'into one file, and write "cannot tell" instead of skipping an input: inputs chosen in '
        "another way do not represent the rest"
    )


def _skipped(
    lines: dict[int, LabelLine], run: Run, path: Path, *, may_be_random: bool
) -> list[int]:
    """The inputs before the last labelled one that have no label; they count as "cannot tell".

    Labels are refused if more inputs were skipped than labelled: they are no sample.
    """
    most = min(2 * len(lines), len(run.logits))
    chosen = rows_of_any_logits(run.logits, most, groups=run.groups).tolist()
    strange = _first_strange(lines, chosen)
    if strange is None:
        last = max(i for i, row in enumerate(chosen) if row in lines)
        return [row for row in chosen[:last] if row not in lines]
    message = (
        f"{path} has {len(lines)} labels, and one for {strange.name!r} in line {strange.line}, which is "
        f"not among the first {most} inputs to label. Inputs chosen in another way do not represent "
        "the rest: label at least half of the inputs of the page, in its order. If they were drawn "
        f"for a threshold, the column {SAMPLING_COLUMN} of their {LABEL_TABLE} is missing"
    )
    if not may_be_random:
        raise InputError(message)
    raise InputError(
        f"{message}. Only if they were really drawn at random from all inputs, say so",
        setting="sampling",
        value="'random'",
    )


def shown_classes(classes: Sequence[str], count: int) -> list[str]:
    """What to call each of `count` classes: its name, or its number where names are missing.

    >>> shown_classes(["cat", "dog"], 2), shown_classes([], 2)
    (['cat', 'dog'], ['0', '1'])
    """
    return list(classes) if len(classes) == count else [str(i) for i in range(count)]


def split_synonyms(lines: Iterable[str]) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    r"""The names of classes, and the synonyms that follow each after a tab.

    >>> split_synonyms(["maillot\tswimsuit\ttank suit", "tench"])
    (('maillot', 'tench'), (('swimsuit', 'tank suit'), ()))
    """
    rows = [line.split("\t") for line in lines]
    names = tuple(row[0] for row in rows)
    return names, tuple(tuple(row[1:]) for row in rows)


def _listed(names: Sequence[str], most: int) -> str:
    """The first of many names.

    >>> _listed(["cat", "dog", "eel"], 2)
    "'cat', 'dog', ... (3 in all)"
    """
    more = f", ... ({len(names):,} in all)" if len(names) > most else ""
    return ", ".join(repr(name[:80]) for name in names[:most]) + more


def _label(text: str, labels: KnownNames) -> int | None:
    """The class that a label stands for: an exact name, a number, no class, or a similar name.

    Tables of numbers with empty cells are often saved with fractions: `1.0` is class 1.

    >>> labels = KnownNames.of(["cat", "dog"])
    >>> [_label(text, labels) for text in ("dog", "0", "1.0", "2", "Dog")]
    [1, 0, 1, None, 1]
    """
    exact = labels.exactly(text)
    if exact is not None:
        return labels.numbers[exact]
    number = text.removesuffix(".0")
    if NUMBER.fullmatch(number) and 0 <= int(number) < len(labels.numbers):
        return int(number)
    if _loosely(text) in NO_CLASS:
        return NO_CLASS[_loosely(text)]
    alike = labels.find(text)
    return None if alike is None else labels.numbers[alike]


@dataclass(frozen=True)
class KnownNames:
    """Names that a person refers to, and may write a little differently.

    >>> known = KnownNames.of(["a.png", "B.png", "b.png", "=c.png"])
    >>> known.find("A.png "), known.find("b.png"), known.find("'=c.png")
    ('a.png', 'b.png', '=c.png')
    >>> known.find("B.PNG")                                       # of two that differ in this alone, neither
    """

    numbers: dict[str, int]  # each name with its number
    alike: dict[str, str]  # names that differ in more than spaces and case, by `_loosely`

    @classmethod
    def of(cls, names: Iterable[str]) -> KnownNames:
        """Number different names."""
        numbers = {name: i for i, name in enumerate(names)}
        loose = {name: _loosely(name) for name in numbers}
        count = Counter(loose.values())
        return cls(numbers, {way: name for name, way in loose.items() if count[way] == 1})

    def exactly(self, text: str) -> str | None:
        """The name that is written so.

        An apostrophe before it may keep a spreadsheet from computing it.
        """
        return next((name for name in (plain_cell(text), text) if name in self.numbers), None)

    def find(self, text: str) -> str | None:
        """The name that is written so, or else the only one that differs in spaces and case alone."""
        exact = self.exactly(text)
        if exact is not None:
            return exact
        ways = (_loosely(plain_cell(text.strip())), _loosely(text))
        return next((self.alike[way] for way in ways if way in self.alike), None)


def _loosely(text: str) -> str:
    """A name without what people get wrong: capital letters, and spaces before, after and twice.

    >>> _loosely(" Cannot  tell")
    'cannot tell'
    """
    return " ".join(text.casefold().split())


def label_texts(classes: Sequence[str]) -> list[str]:
    """What `labels.csv` says for each class: its name, or its number where a name is not unique.

    >>> label_texts(["crane", "heron", "crane", "none of these"])
    ['0', 'heron', '2', '3']
    """
    labels = [name or str(i) for i, name in enumerate(_unique_names(classes))]
    for label, count in Counter(labels).items():
        if count > 1:
            raise InputError(
                f"two classes would have the label {label!r}: give them different names"
            )
    return labels


def told_apart(classes: Sequence[str]) -> list[str]:
    """Names to show; a name of two classes and an empty one get the number of the class.

    >>> told_apart(["crane", "heron", "crane", ""])
    ['crane (class 0)', 'heron', 'crane (class 2)', '(class 3)']
    """
    shown = zip(_unique_names(classes), map(as_unicode, classes), strict=True)
    return [one or f"{name} (class {i})".lstrip() for i, (one, name) in enumerate(shown)]


def _unique_names(classes: Sequence[str]) -> list[str]:
    """The names of classes; empty where two share a name, or it is one of `NOT_A_CLASS`."""
    names = [as_unicode(name) for name in classes]
    known = Counter((*names, *NOT_A_CLASS))
    return [name if known[name] == 1 else "" for name in names]


def as_unicode(text: str) -> str:
    """Text that can be written to a file, as the predictions have it.

    Names of files need not be Unicode.
    """
    return text.encode("utf-8", "replace").decode("utf-8")
