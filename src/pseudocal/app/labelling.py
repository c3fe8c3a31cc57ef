"""Write what a person needs to label a few inputs of a run: a page, and a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pseudocal.app.collect import check_class_count
from pseudocal.app.inputs import open_inputs
from pseudocal.app.inputs.tables import ARRAYS, NUMBER, csv_cell, plain_cell, read_array
from pseudocal.app.inputs.texts import NO_INPUTS, read_descriptions
from pseudocal.app.job import Sampling
from pseudocal.app.label_files import (
    KnownNames,
    check_unique,
    chosen_rows,
    label_columns,
    label_lines,
    shown_classes,
)
from pseudocal.app.publishing import publishing
from pseudocal.app.report.images import as_frame
from pseudocal.app.report.labelling import ToLabel, write_labelling_page
from pseudocal.app.run import LABEL_PAGE, LABEL_TABLE, Run, RunRecord, save_record
from pseudocal.arrays import InputError
from pseudocal.calibrators.labels import RowNumbers
from pseudocal.files import brief, own_file

JOINED = "joined-inputs.csv"  # rows of several runs, in the run folder that joins them
MOST_CELLS = 100  # columns of a row that are shown

Cells = list[tuple[str, str]]  # column and value


def label(
    out: Path | str,
    n: int = 50,
    *,
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
        classes: the names of the classes, if the run was given none or others; they are kept.
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
        names_given = tuple(classes)
        if names_given:
            check_class_count(names_given, run.logits.shape[1])
            run = Run(out, replace(run.record, classes=names_given))
            save_record(aside, run.record)
        check_unique(run.record.names, out)
        rows = chosen_rows(run, n, sampling)
        names = [run.row_names[row] for row in rows]
        table = own_file(out, LABEL_TABLE)
        earlier = _earlier_labels(table, names, pixels=run.pixels is not None)
        chosen = shown_inputs(run, rows)
        page_classes = shown_classes(run.record.classes, run.logits.shape[1])
        write_labelling_page(aside / LABEL_PAGE, chosen, page_classes)
        _write_table(aside / LABEL_TABLE, run, chosen, [earlier.get(name, "") for name in names])
    return out / LABEL_PAGE


def _write_table(path: Path, run: Run, chosen: Sequence[ToLabel], labels: Sequence[str]) -> None:
    """Write the same as a table, with the labels of an earlier one."""
    cells = [one.cells for one in chosen]
    if is_array(run.record):  # whose numbers say nothing to a person
        cells = [()] * len(chosen)
    header = [
        *label_columns(pixels=run.pixels is not None),
        *(column for column, _ in cells[0]),
    ]
    with path.open("w", newline="", encoding="utf-8") as file:
        file.write(",".join(map(csv_cell, header)) + "\n")
        for one, text, values in zip(chosen, labels, cells, strict=True):
            spot = [str(number) for number in one.pixel or ()]
            row = [csv_cell(one.name), *spot, csv_cell(text), *(csv_cell(v) for _, v in values)]
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
                f"first {len(names)} inputs to label: choose more inputs, or move the file away"
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
        places = zip(run.pixels.y[rows].tolist(), run.pixels.x[rows].tolist(), strict=True)
        spots = list(places)
    names = [record.names[i] for i in inputs]
    if record.image_files is not None:
        paths = [Path(record.image_files[i]) for i in inputs]
        missing = [path for path in paths if not path.is_file()]
        if missing:
            raise InputError(f"the image {missing[0]} is not there any more")
        return [ToLabel(*each) for each in zip(names, paths, spots, strict=True)]
    if run.pixels is not None:
        path = _source(record)
        array = read_array(path, record.column)
        frames = [as_frame(array[i]) for i in _row_numbers(names, len(array), path)]
        return [ToLabel(*each) for each in zip(names, frames, spots, strict=True)]
    shown = zip(names, _cells_of(record, rows), strict=True)
    return [ToLabel(name, cells=tuple(cells)) for name, cells in shown]


def _source(record: RunRecord) -> Path:
    """The file of the rows."""
    path = Path(record.source or "")
    if not path.is_file():
        raise InputError(f"the data {path} is not there any more, so it cannot be shown")
    return path


def _row_numbers(names: Sequence[str], length: int, path: Path) -> list[int]:
    """The rows of a file that inputs are named after."""
    for name in names:
        if not NUMBER.fullmatch(name) or not 0 <= int(name) < length:
            raise InputError(
                f"{path} has {length} rows and none called {brief(name)}: it is other data"
            )
    return [int(name) for name in names]


def is_array(record: RunRecord) -> bool:
    """Whether the inputs are rows of numbers, not texts or the columns of a table."""
    return record.source is not None and Path(record.source).suffix.lower() in ARRAYS


def _cells_of(record: RunRecord, rows: RowNumbers) -> Iterator[Cells]:
    """The columns of rows of a table, a line of a text file, or the numbers of rows of an array."""
    if record.source is None:  # outputs that were saved without their inputs
        yield from ([] for _ in rows)
        return
    path = _source(record)
    names = [str(row) if record.saved else record.names[row] for row in rows]
    if is_array(record):
        array = open_inputs(str(path), dtype="float64", field=record.column)
        for number in _row_numbers(names, len(array), path):
            values = array.read(number).ravel()[:MOST_CELLS].tolist()
            yield [(str(i), f"{value:.6g}") for i, value in enumerate(values)]
        return
    columns = read_descriptions(path)
    shown = [name for name in columns if str(name).strip().lower() not in NO_INPUTS][:MOST_CELLS]
    if record.column is not None and not record.saved:  # of texts, what the model was given
        shown = [record.column]
    missing = [name for name in shown if name not in columns]
    if missing:
        raise InputError(f"{path} has no column {brief(missing[0])}, only {', '.join(columns)}")
    length = len(next(iter(columns.values()), ()))
    as_text = plain_cell if path.name == JOINED else str  # we wrote it, with guarded cells
    for number in _row_numbers(names, length, path):
        yield [(str(name), as_text(str(columns[name][number]))) for name in shown]
