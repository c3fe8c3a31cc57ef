"""Compare calibrators on outputs that somebody saved: no images, no network.

A folder has features, logits and labels of three sets of rows, as the released code of PseudoCal
writes them:

    {src_train,src_val,tgt}_{feature,output,label}.npy    or .npz with one array each
    {src_train,src_val,tgt}.npz                           with arrays feature, output, label
    mix_output, mix_label                                 mixup samples and their pseudo-labels

A task's folder of this benchmark is read as well: it has other names for the same things
(`FILE_NAMES`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import InputError, Labelled, looks_like_probabilities
from pseudocal.calibrators import (
    CALIBRATORS,
    Calibration,
    Corrected,
    Material,
    PseudoCal,
    calibrate_by_name,
)
from pseudocal.lab.bench.cached import saved_evidence
from pseudocal.lab.bench.calibrators import CONSTANT, find_compared, takes_seed
from pseudocal.lab.bench.stages import describe
from pseudocal.lab.bench.stages.score import CLASSIFIER_METRICS
from pseudocal.lab.bench.suites import ALL
from pseudocal.metrics import Outcomes
from pseudocal.scaling import TemperatureScaling

FILE_NAMES = {
    "src_train": ("src_train", "source_train"),
    "src_val": ("src_val", "source_val"),
    "tgt": ("tgt", "target"),
    "mix": ("mix", "mixup/pseudocal"),
    "feature": ("feature", "features"),
    "output": ("output", "logits"),
    "label": ("label", "labels"),
}
SETS = ("src_train", "src_val", "tgt", "mix")
SavedArrays = dict[tuple[str, str], NDArray[Any]]  # by set and kind


@dataclass(frozen=True)
class SavedScore:
    """The scores of one calibrator on saved outputs.

    Attributes:
        calibrator: its name in `pseudocal.lab.bench.calibrators.COMPARED`.
        metrics: ECE, NLL, Brier score and accuracy on the target, by name; empty if it failed.
        temperature: the temperature, if it found one.
        error: why it failed, if it did: the released searches may end at no temperature.

    """

    calibrator: str
    metrics: Mapping[str, float]
    temperature: float | None = None
    error: str | None = None


def compare_outputs(
    folder: Path, *, calibrators: Sequence[str] = ALL, seed: int = 0
) -> list[SavedScore]:
    """Fit and score all calibrators that the outputs in a folder suffice for.

    Args:
        folder: the folder.
        calibrators: names in `pseudocal.lab.bench.calibrators.COMPARED`; those that lack data are
            skipped.
        seed: the seed of the samples that the released density ratio draws.

    """
    arrays = read_outputs(folder)
    for kind in ("output", "label"):
        if ("tgt", kind) not in arrays:
            raise InputError(f"expected tgt_{kind}, {kind}s of the target, in {folder}, got none")
    labels = arrays["tgt", "label"]
    material = _material(arrays)
    mixup_samples = _labelled(arrays, "mix")
    found = []
    for name in calibrators:
        try:
            corrected = _corrected(name, material, mixup_samples, seed)
            if corrected is not None:
                found.append(_score(name, corrected, labels))
        except InputError as error:  # the others are compared all the same
            found.append(SavedScore(name, {}, error=str(error)))
        except Exception as error:  # a plugin may raise anything
            found.append(SavedScore(name, {}, error=describe(error)))
    return found


def _score(name: str, corrected: Corrected, labels: NDArray[Any]) -> SavedScore:
    """Score corrected logits; the temperature is known if a calibration has one."""
    outcomes = Outcomes.from_logits(corrected.logits, labels)
    metrics = {key: metric(outcomes) for key, metric in CLASSIFIER_METRICS.items()}
    scaling = None if corrected.calibration is None else corrected.calibration.scaling
    temperature = scaling.temperature if isinstance(scaling, TemperatureScaling) else None
    return SavedScore(name, metrics, temperature)


def read_outputs(folder: Path, sets: Sequence[str] = SETS) -> SavedArrays:
    """Read the arrays of a folder; refuse sets whose arrays differ in their number of rows.

    Args:
        folder: the folder.
        sets: the sets of rows to read.

    """
    if not folder.is_dir():
        raise InputError(f"expected a folder of saved outputs, got {folder}")
    found: SavedArrays = {}
    for rows, kind in product(sets, ("feature", "output", "label")):
        array = next(_candidates(folder, rows, kind), None)
        if array is not None:
            found[rows, kind] = array
    for rows in {rows for rows, _ in found}:
        counts = {
            f"{rows}_{kind}": len(array) for (each, kind), array in found.items() if each == rows
        }
        if len(set(counts.values())) > 1:
            said = ", ".join(f"{count} of {name}" for name, count in counts.items())
            raise InputError(f"expected as many rows in all arrays of {rows}, got {said}")
    return found


def _candidates(folder: Path, rows: str, kind: str) -> Iterator[NDArray[Any]]:
    """Find an array under any of its names."""
    for first in FILE_NAMES[rows]:
        for second in FILE_NAMES[kind]:
            for path in (folder / f"{first}_{second}.npy", folder / f"{first}_{second}.npz"):
                if path.is_file():
                    yield _as_rows(_only(path), kind, path)
            path = folder / f"{first}.npz"
            if path.is_file():
                held = _load(path)
                if second in held:
                    yield _as_rows(held[second], kind, path)


def _load(path: Path) -> dict[str, NDArray[Any]]:
    try:
        loaded = np.load(path, allow_pickle=False)
        return dict(loaded) if path.suffix == ".npz" else {"": loaded}
    except (OSError, ValueError, BadZipFile) as error:
        raise InputError(f"expected arrays of numbers, got {path}: {error}") from error


def _only(path: Path) -> NDArray[Any]:
    held = _load(path)
    if len(held) != 1:
        raise InputError(f"expected one array in {path}, got {', '.join(held) or 'none'}")
    return next(iter(held.values()))


def _as_rows(array: NDArray[Any], kind: str, path: Path) -> NDArray[Any]:
    """Check the shape.

    Labels may be whole numbers that were saved as floats, as the released code saves them.
    """
    dimensions = 1 if kind == "label" else 2
    if array.dtype.kind not in "iuf" or array.ndim != dimensions or len(array) == 0:
        wanted = "(n,)" if kind == "label" else "(n, columns)"
        raise InputError(
            f"expected numbers of shape {wanted} in {path}, got {array.dtype} of shape "
            f"{array.shape}"
        )
    if kind == "label" and array.dtype.kind == "f":
        odd = array[array != np.round(array)]
        if len(odd):
            raise InputError(f"expected whole numbers as labels in {path}, got {odd[0]}")
        return array.astype(np.int64)
    if kind == "output" and looks_like_probabilities(array):
        raise InputError(
            f"expected logits in {path}, got probabilities: their logarithms may stand for logits"
        )
    return array


def _labelled(arrays: SavedArrays, part: str) -> Labelled | None:
    """The logits of a set with their labels; None if either is missing."""
    if (part, "output") not in arrays or (part, "label") not in arrays:
        return None
    return Labelled(arrays[part, "output"], arrays[part, "label"])


def _material(arrays: SavedArrays) -> Material:
    return Material(
        source=_labelled(arrays, "src_val"),
        source_train_features=arrays.get(("src_train", "feature")),
        source_features=arrays.get(("src_val", "feature")),
        target_features=arrays.get(("tgt", "feature")),
        target_logits=arrays["tgt", "output"],
        target_labels=arrays["tgt", "label"],
    )


def _corrected(
    name: str, material: Material, mixup_samples: Labelled | None, seed: int
) -> Corrected | None:
    """Fit a calibrator and correct the target logits; None if the outputs do not suffice for it."""
    logits = np.asarray(material.target_logits)
    if name == "pseudocal":
        if mixup_samples is None:
            return None
        method = PseudoCal(epochs=1, estimator="mixup")
        calibration = method.conclude(saved_evidence(method, logits, mixup_samples))
        return Corrected(name, calibration(logits), calibration)
    compared = find_compared(name)
    if compared.estimator == "constant":
        calibration = Calibration(name, TemperatureScaling(CONSTANT))
        return Corrected(name, calibration(logits), calibration)
    if compared.calibrator not in CALIBRATORS:
        return None
    parts = CALIBRATORS[compared.calibrator].parts
    if any(getattr(material, part) is None for part in parts):
        return None
    settings = dict(compared.settings)
    if takes_seed(compared.calibrator):
        settings["seed"] = seed
    return calibrate_by_name(compared.calibrator, material, **settings)
