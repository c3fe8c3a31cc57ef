"""Export the calibrated model: the temperature goes into the model file."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pseudocal.app.models.files import NOT_EXPORTED, AsLogits, kind_of, open_model
from pseudocal.app.models.model import OpenModel
from pseudocal.app.run import CONFIRMED_FILES, PROBE, UNCONFIRMED, Run
from pseudocal.arrays import InputError
from pseudocal.calibrators import Calibration
from pseudocal.skipped import one_line


def why_not_exported(run: Run, calibration: Calibration, model: OpenModel) -> str | None:
    """Why a model that can be exported is not, for the user; None if there is no such reason."""
    if model.export is None or not is_fitted(calibration):
        return None
    if run.record.output_type == "probabilities" and model.kind != "onnx":
        return f"no model exported: the {model.kind} returns probabilities, not logits"
    if calibration.refused is not None:
        return "no model exported: the fitted temperature was rejected"
    if calibration.verdict == "already calibrated":
        return "no model exported: the model is already calibrated"
    return None


def export(run: Run, calibration: Calibration, model: OpenModel, folder: Path) -> tuple[str, ...]:
    """Write the model with the temperature inside, check it, and return the names of its files.

    Unless the verdict is "apply", the names begin with "unconfirmed-".
    """
    if model.export is None or not is_fitted(calibration):
        return ()
    if why_not_exported(run, calibration, model) is not None:
        return ()
    names = model.export(calibration.temperature, folder, run.probe())
    # a later run, with another verdict, removes only what is listed
    assert set(names) <= set(CONFIRMED_FILES), f"add {names} to CONFIRMED_FILES in app/run.py"
    if calibration.verdict == "apply":
        return tuple(names)
    for name in names:
        (folder / name).rename(folder / (UNCONFIRMED + name))
    return tuple(UNCONFIRMED + name for name in names)


def is_fitted(calibration: Calibration) -> bool:
    """Whether a temperature was fitted, by labels or by an estimate."""
    estimated = calibration.method != "none" and calibration.settings.get("estimator") != "none"
    return estimated or calibration.measured is not None


def reopen_model(run: Run, *, trust: bool, device: str) -> OpenModel | None:
    """Open the model of a run again; None if it cannot be exported anyway.

    The name comes from a file, so code that it names is never imported. The model must say what it
    said when the run was collected.
    """
    record = run.record
    name = record.model.name
    if record.saved or (record.architecture is None and kind_of(name) in NOT_EXPORTED):
        return None
    model = open_model(
        name,
        trust=trust,
        typed=False,
        device=device,
        architecture=record.architecture,
        logits_tensor=record.logits_tensor,
        output_type=record.output_type,
        binary=record.binary,
    )
    if model.export is None:
        return None
    check_unchanged(run, model)
    return model


def check_unchanged(run: Run, model: OpenModel) -> None:
    """Refuse a model that predicts otherwise than when the run was collected."""
    record = run.record
    name = record.model.name
    predict = AsLogits(model.predict, output_type=record.output_type, binary=record.binary)
    try:
        found, collected = run.compare(predict(run.probe()))
    except InputError:
        raise
    except Exception as error:  # a model may raise anything about inputs that it does not take
        raise InputError(
            f"the model {name} does not take the inputs of {PROBE}: {one_line(error)}"
        ) from error
    most = 1e-3 * max(1.0, float(np.ptp(collected)))
    same_shape = found.shape == collected.shape
    if not same_shape or not np.allclose(found, collected, rtol=1e-3, atol=most):
        raise InputError(
            f"{name} has changed since it was calibrated: it predicts {found[0]} instead of "
            f"{collected[0]} for an input; put the original model back there and deploy the "
            "calibrated copy under another path, or calibrate again"
        )
