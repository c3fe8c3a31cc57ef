"""The stages after training, for segmentation.

What a model says of every pixel is too much to keep, so each stage asks it again. Of what `pseudocal.lab.bench.store`
lists, the folder of a task has settings, calibrations, scores, times and errors, and beside them `reliability.npz`:
count, sum of confidence and number of right pixels in each bin, by calibrator.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from pseudocal.arrays import InputError
from pseudocal.calibrators import Calibration
from pseudocal.calibrators.trust import DistrustWarning
from pseudocal.files import save_json
from pseudocal.lab.adapt.tensors import save_arrays
from pseudocal.lab.bench.segmenters import halves, load_model, members, target_of
from pseudocal.lab.bench.stages import calibrated, each, reported
from pseudocal.lab.bench.store import Store, alone, timed
from pseudocal.lab.bench.task import Task
from pseudocal.lab.segmentation.comparison import (
    FITS,
    SEGMENTATION_CALIBRATORS,
    evaluate_ensemble,
    evaluate_maps,
    fit_oracle,
)
from pseudocal.predictors import as_predictor


def calibrate_and_score(task: Task, calibrators: Sequence[str], store: Store) -> None:
    """The stages that compare calibrators."""
    folder = store.start(task)
    with alone(folder):
        (folder / "error.json").unlink(missing_ok=True)
        ready = [name for name in calibrators if name != "oracle" and not calibrated(folder, name)]
        each(ready, "calibrate", folder, lambda name: calibrate_with(task, name, store))
        done = [name for name in calibrators if name == "oracle" or calibrated(folder, name)]
        if set(ready) & set(done) or set(done) - store.scores(task).keys():
            with reported(folder, "score"), timed(folder, "score"):
                score(task, store)


def calibrate_with(task: Task, name: str, store: Store) -> None:
    """Write `calibrations/NAME.json`; of an ensemble it says which models are in it. Target masks are not on offer."""
    path = store.folder(task) / "calibrations" / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    if name == "ensemble":
        members(task, store)
        save_json(path, {"seeds": [member.seed for member in task.members()]})
        return
    if name not in FITS:
        raise InputError(
            f"expected a calibrator of segmentation among {', '.join(SEGMENTATION_CALIBRATORS)}, got {name!r}"
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DistrustWarning)  # the verdict is in the file
        target = target_of(task).unlabelled()
        fitted = FITS[name](load_model(task, store), halves(task)[1], target, dict(task.options)["pixels"], task.seed)
    fitted.save(path)


def score(task: Task, store: Store) -> None:
    """Fit the oracle, then write the metrics of all calibrations that are there."""
    folder, model, target = store.folder(task), load_model(task, store), target_of(task)
    (folder / "calibrations").mkdir(exist_ok=True)
    fit_oracle(model, target, dict(task.options)["pixels"], task.seed).save(folder / "calibrations" / "oracle.json")
    names = [name for name in (*FITS, "oracle") if calibrated(folder, name)]
    found = [Calibration.load(folder / "calibrations" / f"{name}.json").temperature for name in names]
    seen = dict(zip(names, evaluate_maps(as_predictor(model), target, temperatures=found), strict=True))
    temperatures: dict[str, float | None] = dict(zip(names, found, strict=True))
    if calibrated(folder, "ensemble"):
        seen["ensemble"] = evaluate_ensemble(members(task, store), target)
    bins = {name: s.reliability for name, s in seen.items()}
    sums = {name: np.stack([r.count, r.confidence_sum, r.correct_sum]) for name, r in sorted(bins.items())}
    save_arrays(folder / "reliability.npz", edges=bins["oracle"].edges, **sums)
    scores = {name: {**s.score(), "temperature": temperatures.get(name)} for name, s in sorted(seen.items())}
    save_json(folder / "scores.json", scores)
