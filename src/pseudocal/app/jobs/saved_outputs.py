"""Saved outputs of any model as a folder that questions and answers work on.

No model is run, nothing is mixed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.inputs.images import IMAGE_SUFFIXES
from pseudocal.app.inputs.tables import TABLES, check_regular, read_array, read_columns, read_table
from pseudocal.app.inputs.texts import read_descriptions
from pseudocal.app.jobs.kept_target import KeptTarget
from pseudocal.app.jobs.setup import check_count
from pseudocal.app.jobs.staging import staged
from pseudocal.app.models.files import AsLogits, OutputType
from pseudocal.app.report import AboutData, AboutModel, Report, Timing, timing_since
from pseudocal.app.report.predictions import Target
from pseudocal.arrays import InputError, Logits, check_rows
from pseudocal.calibrators import Calibration, uncalibrated
from pseudocal.files import own_file
from pseudocal.stored import StoredArray

NAMES = "file"  # the column of a table that names the inputs


def keep_outputs(
    path: str | Path,
    out: str | Path,
    *,
    inputs: str | Path | None = None,
    outputs: OutputType | None = None,
    binary: bool = False,
    field: str | None = None,
    classes: Iterable[str] = (),
) -> Path:
    """Make a folder for `ask` and `refine` from the outputs of any model, saved in a file.

        out = keep_outputs("probabilities.npy", "out/", inputs="reviews.csv",
        outputs="probabilities") ask(out, 50)                                     # then somebody
        opens out/label.html refine(out, "answers.csv").calibration.verdict

    Args:
        path: an array or a table `(n, classes)`: .npy, .npz, .csv or .parquet.
        out: the folder; if it holds these outputs already, what was answered stays.
        inputs: what the person is shown, a row for each row of the outputs: a table or a text file
            with one input per line. A column `file` names the inputs; where it names images, these
            are shown. None to ask by row number.
        outputs: whether the file holds "logits" or "probabilities"; None for logits, refused if
            they look like probabilities.
        binary: whether there is one number per row, for the second of two classes.
        field: the name of the array to use if an .npz file holds several.
        classes: the class names; empty for the names of the columns of a table, or for numbers.

    """
    path = Path(path)
    out = Path(out)
    logits = AsLogits(lambda x: x, outputs, binary)(saved_array(path, field))
    names = tuple(classes) or (() if binary else saved_classes(path))
    if logits.ndim != 2:
        raise InputError(
            f"expected outputs of shape (n, classes) to ask about, got {logits.shape} in {path}"
        )
    check_rows(logits)
    check_count(names, logits.shape[1])
    described = {} if inputs is None else _descriptions(Path(inputs), len(logits))
    target = Target(
        names=tuple(map(str, described.get(NAMES, range(len(logits))))),
        image_files=_images(described, None if inputs is None else Path(inputs)),
        data=None if inputs is None else os.path.abspath(inputs),
        field=field,
        classes=names,
        labels=None,
        model=str(path.absolute()),
        output=None,
        outputs=outputs,
        binary=binary,
        saved=True,
    )
    _check_the_same(out, logits)
    with staged(out) as aside:
        np.save(aside / "logits.npy", logits)
        target.save(aside)
    return out


def saved_array(path: Path, field: str | None = None) -> NDArray[Any] | StoredArray:
    """Read saved outputs; the numbers of a table are in its columns."""
    check_regular(path, "a file of outputs")
    return read_table(path) if path.suffix.lower() in TABLES else read_array(path, field)


def saved_classes(path: Path) -> tuple[str, ...]:
    """Return the names of the classes: those of the columns of a table; none of an array."""
    return tuple(read_columns(path)) if path.suffix.lower() in TABLES else ()


def _descriptions(path: Path, rows: int) -> dict[str, Any]:
    described = read_descriptions(path)
    found = len(next(iter(described.values()), ()))
    if found != rows:
        raise InputError(
            f"expected a description for each of {rows} outputs, got {found} in {path}"
        )
    return described


def _images(described: dict[str, Any], path: Path | None) -> tuple[str, ...] | None:
    """The image of each input, if the column of names has images, relative to the table."""
    if path is None or NAMES not in described:
        return None
    files = [path.parent / str(name) for name in described[NAMES]]
    if not all(file.suffix.lower() in IMAGE_SUFFIXES for file in files) or not files[0].is_file():
        return None
    return tuple(str(file.absolute()) for file in files)


def _check_the_same(out: Path, logits: Logits) -> None:
    """Refuse a folder that holds other results: its answers would not belong to these outputs."""
    if not (out / "target.json").exists() and not (out / "calibration.json").exists():
        return
    kept = KeptTarget.load(out)
    if not kept.target.saved or not np.array_equal(kept.logits, logits):
        raise InputError(
            f"expected a folder without the results of other outputs, got {out}: give another one"
        )


class Standing(NamedTuple):
    """What is known of a folder before answers are taken.

    Attributes:
        calibration: the calibration without answers.
        model: the description of the model.
        data: the description of the data.
        timing: when the folder was made.

    """

    calibration: Calibration
    model: AboutModel
    data: AboutData
    timing: Timing


def standing(out: Path, target: Target) -> Standing:
    """What a calibration, or an earlier refinement, has left in a folder.

    Of saved outputs there may be neither.
    """
    if target.saved and not (out / "report.json").exists():
        name = target.model
        n = len(target.names)
        what = target.outputs or "logits"
        none = uncalibrated()
        counts = {"pairs": 0, "mixup_samples": 0, "forward_passes": 0}
        return Standing(
            Calibration(none.method, none.scaling, {"outputs": name, "seed": 0}, counts),
            AboutModel(
                name=name, title=Path(name).name, kind="outputs", recipe="outputs", output=None
            ),
            AboutData(
                name=target.data or name,
                inputs=n,
                used=n,
                preparation=f"saved {what}; no model was run",
            ),
            timing_since(time.monotonic()),
        )
    done = Report.load(own_file(out, "report.json"))
    return Standing(
        Calibration.load(own_file(out, "calibration.json")), done.model, done.data, done.timing
    )
