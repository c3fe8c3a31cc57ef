"""A person's answers.

Whom to ask, on a page or in a table, and what the answers make of a calibration.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from pseudocal.app.inputs import open_inputs
from pseudocal.app.inputs.tables import ARRAYS, NUMBER, csv_cell, plain_cell, read_array
from pseudocal.app.inputs.texts import NO_INPUTS, read_descriptions
from pseudocal.app.jobs.answer_file import (
    GivenAnswer,
    KnownNames,
    answer_columns,
    answer_lines,
    read_answers,
    shown_classes,
)
from pseudocal.app.jobs.job import DrawnBy
from pseudocal.app.jobs.kept_target import KeptTarget, check_paths
from pseudocal.app.jobs.setup import check_count
from pseudocal.app.jobs.staging import staged
from pseudocal.app.report.images import as_frame
from pseudocal.app.report.labelling import Question, write_labelling_page
from pseudocal.app.report.predictions import Target
from pseudocal.arrays import InputError, Labelled, Labels, Logits
from pseudocal.calibrators import Calibration
from pseudocal.calibrators.labels import (
    CANNOT_TELL,
    NONE_OF_THESE,
    LabelSample,
    RowNumbers,
    rows_to_label,
)
from pseudocal.files import brief, own_file

TEMPLATE = "ask.csv"
MOST_CELLS = 100  # columns of a row that are shown


def ask_about(
    out: Path | str, n: int = 50, *, classes: Iterable[str] = (), trust_paths: bool = False
) -> Path:
    """Write the questions to ask a person.

    `label.html` for a browser, and `ask.csv` to fill in elsewhere.

    More questions can be asked later: they begin with the same ones, and what was filled in stays.

    Args:
        out: the folder that `calibrate` wrote. Nothing is predicted again.
        n: how many inputs to ask about.
        classes: the names of the classes, if the calibration was given none or others; they are
            kept.
        trust_paths: whether to read files that the folder names outside itself, if somebody else
            wrote it.

    Returns:
        The page.

    """
    out = Path(out)
    with staged(out) as aside:
        kept = KeptTarget.load(out)
        check_paths(kept.target, out, trust_paths)
        if names_given := tuple(classes):
            check_count(names_given, kept.logits.shape[1])
            kept = replace(kept, target=replace(kept.target, classes=names_given))
            kept.target.save(aside)
        _check_different(kept.target.names, out)
        rows = rows_to_label(kept.logits, n, groups=kept.groups)
        names = kept.names
        filled = _filled_in(
            own_file(out, TEMPLATE), [names[row] for row in rows], pixels=kept.pixels is not None
        )
        questions = _questions(kept, rows)
        write_labelling_page(
            aside, questions, shown_classes(kept.target.classes, kept.logits.shape[1])
        )
        with (aside / TEMPLATE).open("w", newline="", encoding="utf-8") as file:
            shown = [[] if _is_array(kept.target) else one.cells for one in questions]
            header = [
                *answer_columns(pixels=kept.pixels is not None),
                *(column for column, _ in shown[0]),
            ]
            file.write(",".join(map(csv_cell, header)) + "\n")
            for one, row, cells in zip(questions, rows, shown, strict=True):
                spot = [str(number) for number in one.pixel or ()]
                label = csv_cell(filled.get(names[row], ""))
                texts = [csv_cell(text) for _, text in cells]
                file.write(",".join([csv_cell(one.name), *spot, label, *texts]) + "\n")
    return out / "label.html"


def refined_by(
    calibration: Calibration, kept: KeptTarget, path: Path, drawn_by: DrawnBy
) -> tuple[Calibration, Labelled]:
    """A calibration brought up to date with a file of answers, and what was answered with its labels.

    Where the answer is "none of these", the label is that of the second likeliest class: the
    prediction is wrong.
    """
    logits = kept.logits
    names = kept.names
    pixels = kept.pixels is not None
    given = read_answers(
        path, names, shown_classes(kept.target.classes, logits.shape[1]), pixels=pixels
    )
    _check_different(kept.target.names, path)
    number = {name: i for i, name in enumerate(names)}
    given.sort(key=lambda one: number[one[0].name])
    rows = np.array([number[one.name] for one, _ in given])
    labels = np.array([label for _, label in given])
    if drawn_by == "ask":
        _check_drawn([one for one, _ in given], rows, kept, path)
    refined = calibration.refined(
        logits,
        LabelSample(rows, labels, "stratified" if drawn_by == "ask" else "random"),
        groups=kept.groups,
    )
    answered = _labelled(
        np.array(logits[rows]), labels, None if kept.groups is None else kept.groups[rows]
    )
    return replace(refined, versions=calibration.versions | refined.versions), answered


def _labelled(logits: Logits, labels: Labels, groups: Any) -> Labelled:
    second = np.argsort(logits, axis=1, kind="stable")[:, -2]
    known = labels != CANNOT_TELL
    right = np.where(labels == NONE_OF_THESE, second, labels)
    return Labelled(logits[known], right[known], groups=None if groups is None else groups[known])


def _check_drawn(given: list[GivenAnswer], rows: RowNumbers, kept: KeptTarget, path: Path) -> None:
    """Refuse answers that are no sample: others than those to the first questions."""
    asked = rows_to_label(kept.logits, len(rows), groups=kept.groups)
    others = [one for one, drawn in zip(given, np.isin(rows, asked), strict=True) if not drawn]
    if not others:
        return
    strange = min(others, key=lambda one: one.line)
    skipped = kept.names[asked[~np.isin(asked, rows)][0]]
    raise InputError(
        f"expected answers to the first {len(rows)} questions in {path}, got none for {skipped!r} and one for "
        f"{strange.name!r} in line {strange.line}, which is not among them: inputs that were chosen in another way are "
        'no fair sample, and nothing can be concluded from them about the rest. Answer "cannot tell" rather than leave '
        "a question out, unless someone else drew the inputs at random",
        setting="drawn_by",
        value='"random"',
    )


def _check_different(names: tuple[str, ...], where: Path) -> None:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(
            f"expected inputs of different names to tell answers apart, got {twice[0]!r} twice for {where}"
        )


def _filled_in(path: Path, names: list[str], *, pixels: bool) -> dict[str, str]:
    """What a person has written into an earlier template; it must not get lost."""
    if not path.exists():  # nor a link to nothing, which is replaced
        return {}
    filled = {}
    known = KnownNames.of(names)
    for one in (given for given in answer_lines(path, pixels=pixels) if given.text):
        name = known.find(one.name)
        if name is None:
            raise InputError(
                f"expected {path} with answers to the first {len(names)} questions, got one for {one.name!r} in line "
                f"{one.line}: ask more questions, or move the file away"
            )
        filled[name] = plain_cell(one.text)
    return filled


def _questions(kept: KeptTarget, rows: RowNumbers) -> list[Question]:
    target, pixels = kept.target, kept.pixels
    inputs = rows.tolist() if pixels is None else pixels.image[rows].tolist()
    spots = (
        [None] * len(rows)
        if pixels is None
        else list(zip(pixels.y[rows].tolist(), pixels.x[rows].tolist(), strict=True))
    )
    names = [target.names[i] for i in inputs]
    if target.image_files is not None:
        paths = [Path(target.image_files[i]) for i in inputs]
        if missing := [path for path in paths if not path.is_file()]:
            raise InputError(
                f"expected the images that were predicted, got {missing[0]}: no such file"
            )
        return [Question(*each) for each in zip(names, paths, spots, strict=True)]
    if pixels is not None:
        path = _data_file(target.data)
        array = read_array(path, target.field)
        numbers = _row_numbers(names, len(array), path)
        frames = (as_frame(array[number]) for number in numbers)
        return [Question(*each) for each in zip(names, frames, spots, strict=True)]
    return [
        Question(name, cells=tuple(cells))
        for name, cells in zip(names, _cells_of(target, rows), strict=True)
    ]


def _row_numbers(names: Sequence[str], length: int, path: Path) -> list[int]:
    """The rows of a file of data that inputs are named after.

    Refuse names of rows that it does not have.
    """
    for name in names:
        if not NUMBER.fullmatch(name) or not 0 <= int(name) < length:
            raise InputError(
                f"expected the data that were predicted, got {path} with {length} rows, not {brief(name)}"
            )
    return [int(name) for name in names]


def _data_file(name: str | None) -> Path:
    path = Path(name or "")
    if not path.is_file():
        raise InputError(f"expected the data that were predicted, got {path}: no such file")
    return path


def _is_array(target: Target) -> bool:
    """Whether the inputs are rows of numbers, not texts or the columns of a table."""
    return target.data is not None and Path(target.data).suffix.lower() in ARRAYS


def _cells_of(target: Target, rows: RowNumbers) -> Iterator[list[tuple[str, str]]]:
    """The columns of rows of a table, a line of a text file, or the numbers of rows of an array."""
    if target.data is None:  # outputs that were saved without their inputs
        yield from ([] for _ in rows)
        return
    path = _data_file(target.data)
    names = [str(row) for row in rows] if target.saved else [target.names[row] for row in rows]
    if not _is_array(target):
        columns = read_descriptions(path)
        shown = [name for name in columns if str(name).strip().lower() not in NO_INPUTS][
            :MOST_CELLS
        ]
        if target.field is not None and not target.saved:  # of texts, what the model was given
            shown = [target.field]
        if strange := [name for name in shown if name not in columns]:
            raise InputError(
                f"expected the column {brief(strange[0])} in {path}, got {', '.join(columns)}"
            )
        length = len(next(iter(columns.values()), ()))
        for number in _row_numbers(names, length, path):
            yield [(str(name), str(columns[name][number])) for name in shown]
        return
    array = open_inputs(str(path), dtype="float64", field=target.field)
    for number in _row_numbers(names, len(array), path):
        values = array.read(number).ravel()
        yield [(str(i), f"{value:.6g}") for i, value in enumerate(values[:MOST_CELLS].tolist())]
