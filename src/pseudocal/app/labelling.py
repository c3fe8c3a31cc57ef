"""Write what a person needs to label a few inputs of a run: a page, and a table."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from pseudocal.app.collect import check_class_count
from pseudocal.app.inputs.sets import NO_INPUTS, open_rows, read_descriptions
from pseudocal.app.inputs.tables import (
    AT_START,
    NUMBER,
    WITHIN,
    csv_cell,
    plain_cell,
    read_array,
)
from pseudocal.app.job import Sampling
from pseudocal.app.label_files import (
    NOT_A_CLASS,
    SAMPLING_COLUMN,
    KnownNames,
    as_unicode,
    check_unique,
    chosen_rows,
    label_columns,
    label_lines,
    label_texts,
    shown_classes,
    split_synonyms,
    told_apart,
)
from pseudocal.app.publishing import publishing
from pseudocal.app.report.images import as_frame, image_within, marked_within
from pseudocal.app.report.page import from_template
from pseudocal.app.run import JOINED, LABEL_PAGE, LABEL_TABLE, Run, RunRecord, save_record
from pseudocal.app.thresholds import ThresholdDraw, check_classifier
from pseudocal.arrays import InputError
from pseudocal.calibrators.labels import RowNumbers
from pseudocal.files import brief, own_file, replacing
from pseudocal.metrics.images import RgbImage

MOST_CELLS = 100  # columns of a row that are shown
IMAGES_ROOM = 9_000_000  # characters that up to 200 images may take together
MANY_IMAGES = 200  # with more, each still gets this fraction of the room, and the page grows

Cells = tuple[tuple[str, str], ...]  # columns and values


# ------------------------------------------------------------------------------ the page


@dataclass(frozen=True)
class ToLabel:
    """An input for a person to label.

    An image, a pixel of it, a row of a table, or nothing but its name.
    """

    name: str  # the input, as predictions name it
    # its file, which is shown large; or its pixels `(height, width, 3)`, if a pixel is to be
    # labelled
    image_file: Path | RgbImage | None = None
    # the line and the column of the pixel to label; None for the whole
    pixel: tuple[int, int] | None = None
    cells: Cells = ()  # of a row of a table


def write_labelling_page(
    path: Path,
    chosen: Sequence[ToLabel],
    classes: Sequence[str],
    synonyms: Sequence[Sequence[str]] = (),
    *,
    sampling: str = "",
) -> None:
    """Write a page that shows one input after another and saves the labels as `labels.csv`.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder) / "label.html"
    ...     write_labelling_page(path, [ToLabel("a.png"), ToLabel("b.png")], ["cat", "dog"])
    ...     "Label 2 inputs" in path.read_text(encoding="utf-8")
    True

    Args:
        path: the file.
        chosen: what to label, in this order.
        classes: the names of the classes, in the model's order.
        sampling: how the inputs were drawn, if `labels.csv` has to say so.
        synonyms: other names of each class, which the search box finds.

    """
    counts = Counter((one.name, one.pixel) for one in chosen)
    hidden = _names_tell(chosen, classes)
    twice = [name for (name, _), count in counts.items() if count > 1]
    if twice:
        raise InputError(f"{twice[0]!r} is to be labelled twice")
    if len({one.pixel is None for one in chosen}) > 1:
        raise InputError("whole inputs and pixels cannot be labelled on one page")
    if not chosen or not classes:
        raise InputError("a labelling page needs inputs and classes")
    unit = "inputs" if chosen[0].image_file is None else "images"
    if chosen[0].pixel is not None:
        unit = "pixels"
    labels = label_texts(classes)
    room = IMAGES_ROOM // min(len(chosen), MANY_IMAGES)
    style = from_template("page.css") + "\n" + from_template("label.css")
    script = from_template("label.js")
    html = from_template(
        "label.html",
        unit=unit,
        data={
            "unit": unit,
            "chosen": [
                _shown(one, labels, room) | {"title": f"input {i + 1}" if hidden else None}
                for i, one in enumerate(chosen)
            ],
            "classes": told_apart(classes),
            "synonyms": [list(each) for each in synonyms],
            "labels": labels,
            "others": NOT_A_CLASS,
            "sampling": sampling,
            "guards": {"start": AT_START, "within": WITHIN},
        },
        style=style,
        script=script,
        style_hash=_content_hash(style),
        script_hash=_content_hash(script),
    )
    with replacing(path) as aside:
        aside.write_text(html, encoding="utf-8")


def _shown(one: ToLabel, labels: Sequence[str], room: int) -> dict[str, Any]:
    """What the page knows of an input; its `key` is where the browser keeps the label."""
    shown = {
        "name": as_unicode(one.name),
        "pixel": one.pixel,
        "cells": [[as_unicode(column), as_unicode(value)] for column, value in one.cells],
    }
    image_file, crop = _drawn(one, room)
    digest = hashlib.sha256(json.dumps([labels, shown], sort_keys=True).encode())
    # the image itself: how small it is drawn depends on the others
    if one.image_file is not None and image_file is not None:
        whole = one.image_file
        digest.update(whole.read_bytes() if isinstance(whole, Path) else whole.tobytes())
    return shown | {
        "image": image_file,
        "crop": crop,
        "unreadable": one.image_file is not None and image_file is None,
        "key": f"pseudocal label {digest.hexdigest()[:32]}",
    }


def _names_tell(chosen: Sequence[ToLabel], classes: Sequence[str]) -> bool:
    """Whether the name of an input contains the name of a class: a person must not see it.

    >>> _names_tell([ToLabel("bird/crane_07.png")], ["heron", "Crane"])
    True
    >>> _names_tell([ToLabel("scratch/07.png")], ["cat", "7"])
    False
    """
    words = {" ".join(_words(name)) for name in classes}
    words = {word for word in words if any(letter.isalpha() for letter in word)}
    names = [f" {' '.join(_words(one.name))} " for one in chosen]
    return any(f" {word} " in name for name in names for word in words)


def _words(text: str) -> list[str]:
    return [word for word in re.split(r"[\W_]+", text.casefold()) if word]


def _drawn(one: ToLabel, room: int) -> tuple[str | None, str | None]:
    """The image and, for a pixel, what is around it."""
    if one.image_file is None:
        return None, None
    if one.pixel is not None:
        return marked_within(one.image_file, one.pixel, room) or (None, None)
    if not isinstance(one.image_file, Path):
        raise InputError(f"{one.name!r} has neither an image file nor a pixel to label")
    return image_within(one.image_file, room), None


def _content_hash(text: str) -> str:
    """How a content policy names the one script, or style, that it lets run."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode("ascii")


# ------------------------------------------------------------------------------ the inputs of a run


def label(
    out: Path | str,
    n: int = 50,
    *,
    for_threshold: float | None = None,
    classes: Iterable[str] = (),
    trust_paths: bool = False,
    sampling: Sampling = "stratified",
) -> Path:
    """Choose inputs for a person to label, and write a page and a table for it.

    `label.html` is for a browser, `to-label.csv` for anything else. More inputs can be chosen later:
    they begin with the same ones, and labels in the table stay.

    Args:
        out: the folder that `calibrate` wrote. Nothing is predicted again.
        n: how many inputs to label.
        for_threshold: draw inputs that could be accepted if at most this fraction of the accepted
            predictions may be wrong. Their labels decide on a threshold (`pseudocal.app.threshold`);
            they do not represent all inputs, so `refine` refuses them.
        classes: the names of the classes, if the run was given none or others; they are kept.
            Synonyms may follow a name, each after a tab; the search box of the page finds them.
        trust_paths: whether to read files that the folder names outside itself, if somebody else
            wrote it.
        sampling: "stratified" for inputs that are spread over classes and confidences, "random" for
            inputs in random order.

    Returns:
        The page.

    """
    out = Path(out)
    with publishing(out) as aside:
        run = Run.open(out, trust_paths=trust_paths)
        names_given, synonyms = split_synonyms(classes)
        if names_given:
            check_class_count(names_given, run.logits.shape[1])
            run = Run(out, replace(run.record, classes=names_given))
            save_record(aside, run.record)
        check_unique(run.record.names, out)
        rows, drawn = _chosen(run, n, for_threshold, sampling)
        names = [run.row_names[row] for row in rows]
        table = own_file(out, LABEL_TABLE)
        earlier = _earlier_labels(table, names, pixels=run.pixels is not None)
        chosen = shown_inputs(run, rows)
        page_classes = shown_classes(run.record.classes, run.logits.shape[1])
        write_labelling_page(aside / LABEL_PAGE, chosen, page_classes, synonyms, sampling=drawn)
        labels = [earlier.get(name, "") for name in names]
        _write_table(aside / LABEL_TABLE, run, chosen, labels, drawn)
    return out / LABEL_PAGE


def _chosen(
    run: Run, n: int, for_threshold: float | None, sampling: Sampling
) -> tuple[RowNumbers, str]:
    """The rows to label, and how they were drawn, as the labels file says it."""
    if for_threshold is None:
        return chosen_rows(run, n, sampling), ""
    check_classifier(run)
    draw = ThresholdDraw.now(run, for_threshold)
    return draw.rows(run, n)[0], str(draw)


def _write_table(
    path: Path, run: Run, chosen: Sequence[ToLabel], labels: Sequence[str], sampling: str
) -> None:
    """Write the same as a table, with the labels of an earlier one."""
    cells = [one.cells for one in chosen]
    if run.record.of_array:  # whose numbers say nothing to a person
        cells = [()] * len(chosen)
    drawn = [sampling] if sampling else []
    header = [
        *label_columns(pixels=run.pixels is not None),
        *([SAMPLING_COLUMN] if sampling else []),
        *(column for column, _ in cells[0]),
    ]
    with path.open("w", newline="", encoding="utf-8") as file:
        file.write(",".join(map(csv_cell, header)) + "\n")
        for one, text, values in zip(chosen, labels, cells, strict=True):
            spot = [str(number) for number in one.pixel or ()]
            texts = [text, *drawn, *(value for _, value in values)]
            row = [csv_cell(one.name), *spot, *map(csv_cell, texts)]
            file.write(",".join(row) + "\n")


def _earlier_labels(path: Path, names: list[str], *, pixels: bool) -> dict[str, str]:
    """What a person has written into an earlier table; it must not get lost."""
    if not path.exists():  # nor a link to nothing, which is replaced
        return {}
    found = {}
    known = KnownNames.of(names)
    for line in label_lines(path, pixels=pixels):
        if not line.text:
            continue
        name = known.find(line.name)
        if name is None:
            raise InputError(
                f"{path} has a label for {line.name!r} in line {line.line}, which is not among the "
                f"first {len(names)} inputs to label now: choose more inputs, or move the file "
                "away if they are chosen for another purpose"
            )
        found[name] = line.text
    return found


def shown_inputs(run: Run, rows: RowNumbers) -> list[ToLabel]:
    """What a person is shown of each input, or of each pixel."""
    record = run.record
    inputs = rows.tolist()
    spots: list[tuple[int, int] | None] = [None] * len(inputs)
    if run.pixels is not None:
        inputs = run.pixels.image[rows].tolist()
        spots = list(zip(run.pixels.y[rows].tolist(), run.pixels.x[rows].tolist(), strict=True))
    names = [record.names[i] for i in inputs]
    if record.image_files is not None:
        paths = [Path(record.image_files[i]) for i in inputs]
        missing = [path for path in paths if not path.is_file()]
        if missing:
            raise InputError(f"the image {missing[0]} no longer exists")
        return [ToLabel(*each) for each in zip(names, paths, spots, strict=True)]
    if run.pixels is not None:
        path = _source(record)
        array = read_array(path, record.column)
        frames = [as_frame(array[i]) for i in _row_numbers(names, len(array), path)]
        return [ToLabel(*each) for each in zip(names, frames, spots, strict=True)]
    cells = _cells_of(run, rows)
    return [ToLabel(name, cells=each) for name, each in zip(names, cells, strict=True)]


def _source(record: RunRecord) -> Path:
    """The file of the rows."""
    path = Path(record.source or "")
    if not path.is_file():
        raise InputError(f"the data {path} no longer exists, so it cannot be shown")
    return path


def _row_numbers(names: Sequence[str], length: int, path: Path) -> list[int]:
    """The rows of a file that inputs are named after."""
    for name in names:
        if not NUMBER.fullmatch(name) or not 0 <= int(name) < length:
            raise InputError(
                f"{path} has {length} rows, but no row {brief(name)}: it is not the data of this "
                "run"
            )
    return [int(name) for name in names]


def _cells_of(run: Run, rows: RowNumbers) -> list[Cells]:
    """The columns of rows of a table, a line of a text file, or the numbers of rows of an array.

    A column that the model ignores and that has nothing but classes is left out: it may be the
    ground truth.
    """
    record = run.record
    if record.source is None:  # outputs that were saved without their inputs
        return [()] * len(rows)
    path = _source(record)
    names = [str(row) if record.saved else record.names[row] for row in rows]
    if record.of_array:
        array = open_rows(str(path), dtype="float64", field=record.column)
        numbers = _row_numbers(names, len(array), path)
        values = [array.read(number).ravel()[:MOST_CELLS].tolist() for number in numbers]
        return [tuple((str(i), _few_digits(v)) for i, v in enumerate(row)) for row in values]
    columns = read_descriptions(path)
    if not columns:  # log-probabilities without questions and options: their names are all there is
        return [()] * len(rows)
    classes = set(shown_classes(record.classes, run.logits.shape[1]))
    truths = [name for name in record.ignored if set(map(str, columns.get(name, ()))) <= classes]
    hidden = {*NO_INPUTS, *(name.strip().lower() for name in truths)}
    shown = [name for name in columns if str(name).strip().lower() not in hidden][:MOST_CELLS]
    if record.column is not None and not record.saved:  # of texts, what the model was given
        shown = [record.column]
    missing = [name for name in shown if name not in columns]
    if missing:
        raise InputError(f"{path} has no column {brief(missing[0])}, only {', '.join(columns)}")
    length = len(next(iter(columns.values()), ()))
    as_text = plain_cell if path.name == JOINED else str  # we wrote it, with guarded cells
    return [
        tuple((str(name), as_text(_few_digits(columns[name][number]))) for name in shown)
        for number in _row_numbers(names, length, path)
    ]


def _few_digits(value: Any) -> str:
    """A cell for a person to read: fractions have four digits, other cells stay.

    >>> [_few_digits(value) for value in (0.1 + 0.2, 1 / 3000, 123456.789, 2.0, 7, "0.123456")]
    ['0.3', '0.0003333', '123457', '2', '7', '0.123456']
    """
    if not isinstance(value, float | np.floating):
        return str(value)
    number = float(value)
    return f"{number:.0f}" if 1000 <= abs(number) < 1e15 else f"{number:.4g}"
