"""Saved outputs of any model: as a run, scored against ground truth, and calibrated."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.collect import check_class_count
from pseudocal.app.inputs.choices import JSONL, read_choices
from pseudocal.app.inputs.ground_truth import as_numbers, read_ground_truth
from pseudocal.app.inputs.images import IMAGE_SUFFIXES
from pseudocal.app.inputs.sets import read_descriptions
from pseudocal.app.inputs.tables import (
    ARRAYS,
    REAL,
    TABLES,
    check_has_rows,
    check_regular,
    numbers_of,
    read_array,
    read_columns,
)
from pseudocal.app.models.files import (
    AsLogits,
    OutputType,
    check_class_names,
    check_output_shape,
)
from pseudocal.app.publishing import finish_publishing, publishing
from pseudocal.app.records import to_plain
from pseudocal.app.report import Report, measure, write_page
from pseudocal.app.report.page import ComparedLine, comparison, line_of
from pseudocal.app.report.predictions import PredictionTable, row_chunks, writing_table
from pseudocal.app.run import (
    CALIBRATION,
    LOGITS,
    PAGE,
    RECORD,
    REPORT,
    SECOND,
    AboutData,
    AboutModel,
    Run,
    RunRecord,
    Timing,
    save_run,
)
from pseudocal.arrays import (
    InputError,
    Logits,
    Maps,
    as_labels,
    as_logits,
    as_maps,
    check_rows,
    looks_like_probabilities,
)
from pseudocal.calibrators import Calibration
from pseudocal.calibrators.calibration import (
    check_same_classes,
    scaled,
    scaled_probabilities,
    versions,
)
from pseudocal.files import allocate_array, own_file, replacing
from pseudocal.maps import check_maps
from pseudocal.metrics import Outcomes, Segmented
from pseudocal.stored import StoredArray

SAVED = ARRAYS | TABLES | {JSONL}  # the suffixes of saved outputs
NAMES = "file"  # the column of a table that names the inputs
PREDICTED = "class"  # the column of predicted classes, as `predictions.csv` calls it
NAMES_OF_RUN = "write numbers, or pass --calibration OUT/calibration.json"
TELLING_ROWS = 1000  # rows that show whether the numbers are probabilities


def collect_outputs(
    path: str | Path,
    out: str | Path,
    *,
    inputs: str | Path | None = None,
    second_opinion: str | Path | None = None,
    output_type: OutputType | None = None,
    binary: bool = False,
    field: str | None = None,
    classes: Iterable[str] = (),
) -> Path:
    """Make a run from the outputs of any model, saved in a file: no model is run.

        out = collect_outputs("probabilities.npy", "out/", inputs="reviews.csv",
                              output_type="probabilities")
        label(out, 50)                                   # then somebody opens out/label.html
        refine(out, "labels.csv").calibration.verdict

    Args:
        path: an array or a table `(n, classes)`: .npy, .npz, .csv or .parquet; or .jsonl with the
            log-probabilities of options (`inputs/choices.py`).
        out: the folder; if it holds these outputs already, its labels stay.
        inputs: what the person is shown, a row for each row of the outputs: a table or a text file
            with one input per line. A column `file` names the inputs; where it names images, these
            are shown. None to show row numbers.
        second_opinion: the saved outputs of a second model for the same inputs: logits,
            probabilities, or predicted classes in one column.
        output_type: whether the file holds "logits" or "probabilities"; None for logits, refused if
            they look like probabilities.
        binary: whether there is one number per row, for the second of two classes.
        field: the name of the array to use if an .npz file holds several.
        classes: the class names; empty for the names of the columns of a table, or for numbers.

    """
    path = Path(path)
    out = Path(out)
    saved = read_outputs(path, field)
    logits = AsLogits(lambda x: x, output_type, binary)(np.asarray(saved.array))
    row_names = saved.names or tuple(map(str, range(len(logits))))
    if logits.ndim != 2:
        raise InputError(f"{path} has outputs of shape {logits.shape}, not (n, classes)")
    check_rows(logits)
    names = tuple(classes) or (() if binary else saved.classes)
    check_class_count(names, logits.shape[1])
    name = str(path.absolute())
    if inputs is None and path.suffix.lower() == JSONL:
        inputs = path
    source = None if inputs is None else os.path.abspath(inputs)
    described: dict[str, Any] = {}
    image_files = None
    if inputs is not None:
        described = _descriptions(Path(inputs), len(logits))
        image_files = _images(described, Path(inputs))
    record = RunRecord(
        model=AboutModel(name=name, title=path.name, kind="outputs", recipe="outputs", output=None),
        data=AboutData(
            name=os.path.basename(source or name),
            inputs=len(logits),
            used=len(logits),
            preparation=f"saved {output_type or 'logits'}; no model was run",
        ),
        names=tuple(map(str, described.get(NAMES, row_names))),
        image_files=image_files,
        source=source,
        column=field,
        classes=names,
        ground_truth=None,
        logits_tensor=None,
        output_type=output_type,
        binary=binary,
        timing=Timing(0.0, datetime.now(UTC).isoformat(timespec="seconds")),
        saved=True,
        versions=versions(),
    )
    earlier = _earlier_run(out, logits)
    if earlier is not None:  # its second opinion stays
        before = earlier.record
        record = replace(record, second_models=before.second_models, settings=before.settings)
    second = None
    if second_opinion is not None:
        second = read_second(Path(second_opinion), names, record.names, logits.shape[1], field)
        record = replace(
            record,
            second_models=1,
            settings={"second_opinion": [str(Path(second_opinion).absolute())]},
        )
    with publishing(out) as aside:
        np.save(aside / LOGITS, logits)
        if second is not None:
            np.save(aside / SECOND.format(0), second)
        save_run(aside, record, None, np.empty(0))
    return out


@dataclass(frozen=True, eq=False)
class SavedOutputs:
    """The content of a file of saved outputs."""

    path: Path
    array: Any  # an array, which may stay in its file; the numbers of a table are in its columns
    classes: tuple[str, ...] = ()  # the names of the columns of a table; none of an array
    inputs: tuple[str, ...] = ()  # the names of the inputs, in a column of the table

    @property
    def record(self) -> RunRecord | None:
        """The record of the run whose logits these are; None of other outputs."""
        return _record_beside(self.path) if self.path.name == LOGITS else None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the inputs, in the file or in its run folder; none of another array."""
        record = self.record
        return self.inputs if record is None else record.names


def read_outputs(path: Path, field: str | None = None, *, or_classes: bool = False) -> SavedOutputs:
    """Read a file of saved outputs.

    Args:
        path: the file.
        field: the name of the array to use if an .npz file holds several.
        or_classes: whether a table may have a column of predicted classes instead.

    """
    check_regular(path, "a file of outputs")
    if path.suffix.lower() == JSONL:
        choices = read_choices(path)
        return SavedOutputs(path, choices.logits, choices.classes, choices.names)
    if path.suffix.lower() not in TABLES:
        return SavedOutputs(path, read_array(path, field))
    columns = read_columns(path)
    names = tuple(map(str, columns.pop(NAMES, ())))
    check_has_rows(columns, path)
    if or_classes and (PREDICTED in columns or len(columns) == 1):
        [first, *_] = columns.values()
        return SavedOutputs(path, columns.get(PREDICTED, first), inputs=names)
    _refuse_texts(columns, path)
    _refuse_row_numbers(columns, path)
    return SavedOutputs(path, numbers_of(columns, path), tuple(columns), names)


def _refuse_texts(columns: dict[str, NDArray[Any]], path: Path) -> None:
    """Refuse columns that are not numeric."""
    texts = [name for name, cells in columns.items() if cells.dtype.kind not in REAL]
    if texts:
        raise InputError(
            f"expected saved outputs with a numeric column for each class, got {path}, whose column "
            f"{texts[0]!r} is not numeric"
        )


def _refuse_row_numbers(columns: dict[str, NDArray[Any]], path: Path) -> None:
    """Refuse a column of an index among outputs: it would be taken for a class."""
    whole = [name for name, cells in columns.items() if cells.dtype.kind in "iu"]
    if len(whole) == len(columns):
        return
    for name in whole:
        cells = columns[name]
        if len(cells) > 2 and len(np.unique(cells)) == len(cells):
            raise InputError(
                f"the column {name!r} of {path} has a different whole number in each row, so it is "
                f"not a class: remove it, or rename it to {NAMES!r} if it names the inputs"
            )


def read_second(
    path: Path,
    classes: Sequence[str],
    names: Sequence[str],
    count: int,
    field: str | None = None,
) -> NDArray[Any]:
    """Read the outputs of a second model: logits `(n, classes)`, or predicted classes `(n,)`.

    Rows and columns of a table are matched by name, where both files have names.

    Args:
        path: the file.
        classes: the names of the classes of the first model, if they have names.
        names: the names of the inputs.
        count: the number of classes.
        field: the name of the array to use if an .npz file holds several.

    """
    saved = read_outputs(path, field, or_classes=True)
    values = np.asarray(saved.array)
    if values.ndim == 1:
        found: NDArray[Any] = as_numbers(values, classes, path)
    else:
        binary = values.ndim == 2 and values.shape[1] == 1 and count == 2
        is_probability = values.ndim == 2 and looks_like_probabilities(values)
        kind: OutputType = "probabilities" if is_probability else "logits"
        found = AsLogits(lambda x: x, kind, binary)(values)
        theirs = saved.classes
        if classes and theirs and sorted(theirs) == sorted(classes):
            found = found[:, [theirs.index(name) for name in classes]]
        elif classes and theirs:
            check_class_names(tuple(classes), theirs)
        if found.shape[1:] != (count,):
            raise InputError(f"{path} has outputs of shape {found.shape} for {count} classes")
    if len(found) != len(names):
        raise InputError(f"{path} has {len(found)} outputs for {len(names)} inputs")
    their_names = saved.names
    if their_names and their_names != tuple(names) and sorted(their_names) == sorted(names):
        number = {name: i for i, name in enumerate(their_names)}
        found = found[[number[name] for name in names]]
    return found


def _descriptions(path: Path, rows: int) -> dict[str, Any]:
    described = read_descriptions(path)
    found = len(next(iter(described.values()), ()))
    if described and found != rows:  # log-probabilities may come without questions
        raise InputError(f"{path} describes {found} inputs, but there are {rows} outputs")
    return described


def _images(described: dict[str, Any], path: Path) -> tuple[str, ...] | None:
    """The image of each input, if the column of names has images, relative to the table."""
    if NAMES not in described:
        return None
    files = [path.parent / str(name) for name in described[NAMES]]
    if not all(file.suffix.lower() in IMAGE_SUFFIXES for file in files) or not files[0].is_file():
        return None
    return tuple(str(file.absolute()) for file in files)


def _earlier_run(out: Path, logits: Logits) -> Run | None:
    """The run of these outputs that the folder holds already.

    Another run is refused: its labels would not belong to these outputs.
    """
    if not os.path.lexists(out / RECORD) and not os.path.lexists(out / CALIBRATION):
        return None
    run = Run.open(out)
    if not run.record.saved or not np.array_equal(run.logits, logits):
        raise InputError(f"{out} contains another run: choose another folder", setting="out")
    return run


def load_outputs(
    path: Path,
    *,
    output_type: OutputType | None = None,
    binary: bool = False,
    field: str | None = None,
) -> SavedOutputs:
    """Open logits `(n, classes)`, or those of every pixel; the options are as in `collect_outputs`.

    Probabilities become logits by taking the logarithm.
    """
    saved = read_outputs(path, field)
    array = saved.array
    read = AsLogits(lambda x: x, output_type, binary)
    if binary:  # the name of the one column names no class
        return replace(saved, array=read(np.asarray(array)), classes=())
    if array.ndim in (1, 2):
        check_output_shape(array)
    as_checked = as_maps if array.ndim == 4 else as_logits
    if output_type == "probabilities" or array.ndim not in (2, 4) or array.dtype.kind != "f":
        return replace(saved, array=read(as_checked(np.asarray(array))))
    read(as_checked(array[: 1 if array.ndim == 4 else TELLING_ROWS]))
    return saved


def evaluate(
    logits: Path,
    ground_truth: Path,
    calibration: Path | None,
    *,
    output_type: OutputType | None = None,
    binary: bool = False,
    field: str | None = None,
) -> list[dict[str, Any]]:
    """Compute metrics of saved logits, and of the calibrated ones if there is a calibration.

    Ground truth may be names of classes: those of the columns of a table, or of the run that the
    outputs or the calibration belong to. A column `file` of it is matched with the names of the inputs: a column `file`
    of the outputs, or those of the run that the outputs or the calibration belong to.
    """
    loaded = None if calibration is None else load_calibration(calibration)
    saved = load_outputs(logits, output_type=output_type, binary=binary, field=field)
    values = saved.array
    if loaded is not None:
        check_same_classes(loaded, values.shape[1])
    if values.ndim == 4:
        kind: Any = Segmented
        score: Any = Segmented.of
        truth = _masks(ground_truth, len(values))
    else:
        kind = Outcomes
        score = Outcomes.from_logits
        classes = saved.classes
        names = saved.names
        records = [saved.record, None if calibration is None else _record_beside(calibration)]
        for record in records:
            if record is None:
                continue
            classes = classes or record.classes
            if not names and len(record.names) == len(values):
                names = record.names
        names = names or tuple(map(str, range(len(values))))
        labels = read_ground_truth(ground_truth, names, classes, hint=NAMES_OF_RUN)
        truth = as_labels(labels, values)  # only the shape of the logits matters
    before = []
    after = []
    for rows, some in _checked_chunks(values):
        known = np.asarray(truth[rows]).astype(np.int64)  # masks of two classes may be bool
        before.append(score(some, known))
        if loaded is not None:
            after.append(score(scaled(loaded.scaling, some), known))
    rows_of_table = measure(kind.concatenate(before), kind.concatenate(after) if after else None)
    plain = [to_plain(row) for row in rows_of_table]
    return [{key: value for key, value in row.items() if value is not None} for row in plain]


def _masks(path: Path, images: int) -> NDArray[Any] | StoredArray:
    """Read the true classes of all pixels."""
    masks = read_array(path) if path.suffix.lower() in ARRAYS else np.empty(0)
    if masks.ndim != 3 or len(masks) != images:
        raise InputError(
            f"expected an .npy of masks ({images}, height, width), got {path} of shape "
            f"{masks.shape}"
        )
    if masks.dtype != bool and not np.issubdtype(masks.dtype, np.integer):
        raise InputError(f"expected masks that are integers, got dtype {masks.dtype} in {path}")
    return masks


def _checked_chunks(values: Logits | Maps | StoredArray) -> Iterator[tuple[slice, Any]]:
    """Read a few rows, or one image, at a time: all may not fit into memory.

    An error names the row, or the image, of the file.
    """
    if values.ndim == 4:
        for i in range(len(values)):
            image = np.array(values[i : i + 1])
            check_maps(image, first=i)
            yield slice(i, i + 1), image
        return
    for rows in row_chunks(values):
        some = values[rows]
        check_rows(some, np.arange(rows.start, rows.stop))
        yield rows, some


def load_calibration(path: Path) -> Calibration:
    """Read a calibration file, which may be a link that leaves a folder from somebody else."""
    return Calibration.load(own_file(path.parent, path.name))


def _record_beside(path: Path) -> RunRecord | None:
    """The record of the run in whose folder a file is; None if there is none."""
    return Run.open(path.parent).record if (path.parent / RECORD).exists() else None


def apply(
    calibration: Calibration,
    logits: Path,
    out: Path,
    *,
    output_type: OutputType | None = None,
    binary: bool = False,
    field: str | None = None,
) -> tuple[int, ...]:
    """Write calibrated probabilities, a few rows or one image at a time.

    The file appears once it is complete.
    """
    if out.exists() and logits.exists() and out.samefile(logits):
        raise InputError(
            f"the probabilities would replace the logits in {logits}: choose another file",
            setting="out",
        )
    saved = load_outputs(logits, output_type=output_type, binary=binary, field=field)
    values = saved.array
    check_same_classes(calibration, values.shape[1])
    suffix = out.suffix.lower()
    if suffix in TABLES and values.ndim == 2:
        _write_table(calibration, saved, out)
        return tuple(values.shape)
    if suffix != ".npy":
        raise InputError(f"expected an output file that ends in .npy, .csv or .parquet, got {out}")
    with replacing(out) as aside:
        written = allocate_array(
            aside, values.shape, np.float64 if values.dtype.itemsize > 4 else np.float32
        )
        for rows, some in _checked_chunks(values):
            written[rows] = scaled_probabilities(calibration.scaling, some)
        del written
    return tuple(values.shape)


def _write_table(calibration: Calibration, saved: SavedOutputs, out: Path) -> None:
    """Write calibrated probabilities with the columns of the saved table."""
    names = saved.names
    classes = saved.classes or tuple(map(str, range(saved.array.shape[1])))
    with writing_table(out) as write:
        for rows, some in _checked_chunks(saved.array):
            probabilities = scaled_probabilities(calibration.scaling, some)
            columns: PredictionTable = {NAMES: list(names[rows])} if names else {}
            columns |= {name: probabilities[:, i] for i, name in enumerate(classes)}
            write(columns)


def redraw(folder: Path) -> Path:
    """Draw `report.html` again from `report.json`, and return its path."""
    finish_publishing(folder)
    write_page(Report.load(own_file(folder, REPORT)), folder)
    return folder / PAGE


def compare_reports(folders: Sequence[Path], out: Path) -> list[ComparedLine]:
    """Write one page with a line for each folder that `calibrate` wrote, and return the lines."""
    lines = []
    for folder in folders:
        finish_publishing(folder)
        address = quote(os.path.relpath(folder / PAGE, out.parent))
        lines.append(line_of(Report.load(own_file(folder, REPORT)), str(folder), address))
    with replacing(out) as aside:
        aside.write_text(comparison(lines), encoding="utf-8", errors="replace")
    return lines
