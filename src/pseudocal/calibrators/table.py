"""All calibrators by name, with what they need and what they promise.

A method is given only the parts that its entry declares. So the tables are true by construction: a
method that is listed as needing no source data or no target labels cannot read them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.arrays import InputError, Labelled, Logits
from pseudocal.batches import DEFAULT_BATCH_SIZE
from pseudocal.calibrators.baselines.accuracy import atc, doc
from pseudocal.calibrators.baselines.ensembles import ensemble, mc_dropout, pseudo_ensemble
from pseudocal.calibrators.baselines.importance import cpcs, density_ratio, transcal
from pseudocal.calibrators.baselines.oracle import oracle
from pseudocal.calibrators.baselines.scaling import matrixscal, tempscal, uncalibrated, vectorscal
from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.material import PARTS, Material, Part
from pseudocal.calibrators.pseudocal import PseudoCal
from pseudocal.files import brief


@dataclass(frozen=True)
class Entry:
    """One calibrator.

    Attributes:
        title: Its name in the paper.
        function: The calibrator itself.
        needs: The parts of the material that it is given.
        corrects: The logits that its scaling is applied to; None if it returns logits.
        keeps_argmax: Whether the predicted classes stay the same.
        covariate_shift: Whether it is meant for a shift of p(x), according to its paper.
        label_shift: Whether it is meant for a shift of p(y), according to its paper.

    """

    title: str
    function: Callable[..., Calibration | Logits]
    needs: tuple[Part, ...] = ()
    corrects: Part | None = "target_logits"
    keeps_argmax: bool = True
    covariate_shift: bool = False
    label_shift: bool = False

    @property
    def parts(self) -> tuple[Part, ...]:
        """All parts that `calibrate_by_name` needs.

        Those for the method, then those its result is applied to.
        """
        if self.corrects is None or self.corrects in self.needs:
            return self.needs
        return (*self.needs, self.corrects)

    @property
    def source_data(self) -> bool:
        """Whether it needs source data."""
        return any(part.startswith("source") for part in self.needs)

    @property
    def extra_training(self) -> bool:
        """Whether something besides the model must be trained: other models, or a density ratio."""
        return not {"members", "member_logits", "source_train_features"}.isdisjoint(self.needs)


@dataclass(frozen=True, eq=False)
class Corrected:
    """Target logits after calibration.

    Attributes:
        method: The name of the calibrator.
        logits: The calibrated logits, of shape `(n, classes)`.
        calibration: The calibration; None if the calibrator returns logits.

    """

    method: str
    logits: Logits
    calibration: Calibration | None = None


def calibrate_by_name(name: str, material: Material, **settings: Any) -> Corrected:
    """Run one calibrator on the parts of `material` that it needs, and correct the target logits.

    >>> import numpy as np
    >>> material = Material(target_logits=np.array([[2.0, 0.0]] * 4), target_labels=[0, 0, 0, 1])
    >>> calibrate_by_name("oracle", material).calibration
    Calibration(oracle: T = 1.820 in [...], from 4 rows)
    >>> calibrate_by_name("none", material).logits[0]
    array([2., 0.])

    Args:
        name: A name in `CALIBRATORS`.
        material: The data that is available.
        **settings: Settings of the calibrator.

    """
    if name not in CALIBRATORS:
        raise InputError(f"expected one of {', '.join(CALIBRATORS)}, got {name!r}")
    entry = CALIBRATORS[name]
    given = material.pick(entry.parts, name)  # raises before anything runs
    found = entry.function(**{part: given[part] for part in entry.needs}, **settings)
    if not isinstance(found, Calibration):
        if np.ndim(found) != 2:
            raise InputError(
                f"expected a Calibration or logits of shape (n, classes) from {name}, got "
                f"{brief(found)}: for a temperature T, return Calibration(name, "
                "TemperatureScaling(T))"
            )
        return Corrected(name, found)
    assert entry.corrects is not None
    before = given[entry.corrects]
    if entry.corrects == "member_logits":
        before = ensemble(before, mean=found.settings["mean"])
    return Corrected(name, found(before), found)


def _pseudocal(
    model: Any, target_inputs: Any, *, batch_size: int = DEFAULT_BATCH_SIZE, **settings: Any
) -> Calibration:
    method = PseudoCal(**{"estimator": "mixup"} | settings)
    return method.fit(model, target_inputs, batch_size=batch_size)


def _cpcs(
    source: Labelled,
    source_train_features: ArrayLike,
    source_features: ArrayLike,
    target_features: ArrayLike,
    *,
    reference: bool = False,
    seed: int = 0,
) -> Calibration:
    ratio = density_ratio(source_train_features, target_features, reference=reference, seed=seed)
    return cpcs(source, ratio(source_features), reference=reference)


def _transcal(
    source: Labelled,
    source_train_features: ArrayLike,
    source_features: ArrayLike,
    target_features: ArrayLike,
    target_logits: ArrayLike,
    *,
    reference: bool = False,
    start: float = 2.0,
    seed: int = 0,
    **settings: Any,
) -> Calibration:
    ratio = density_ratio(source_train_features, target_features, reference=reference, seed=seed)
    weights = ratio(source_features)
    settings |= {"reference": reference, "start": start}
    return transcal(source, weights, target_logits, **settings)


FEATURES: tuple[Part, ...] = ("source_train_features", "source_features", "target_features")

CALIBRATORS: dict[str, Entry] = {
    "none": Entry("No calibration", uncalibrated),
    "matrixscal": Entry("MatrixScal", matrixscal, ("source",), keeps_argmax=False),
    "vectorscal": Entry("VectorScal", vectorscal, ("source",), keeps_argmax=False),
    "tempscal": Entry("TempScal", tempscal, ("source",)),
    "cpcs": Entry("CPCS", _cpcs, ("source", *FEATURES), covariate_shift=True),
    "transcal": Entry(
        "TransCal", _transcal, ("source", *FEATURES, "target_logits"), covariate_shift=True
    ),
    "mc-dropout": Entry(
        "MC-Dropout",
        mc_dropout,
        ("model", "target_inputs"),
        corrects=None,
        keeps_argmax=False,
        covariate_shift=True,
        label_shift=True,
    ),
    "ensemble": Entry(
        "Ensemble",
        ensemble,
        ("member_logits",),
        corrects=None,
        keeps_argmax=False,
        covariate_shift=True,
        label_shift=True,
    ),
    "pseudocal": Entry(
        "PseudoCal", _pseudocal, ("model", "target_inputs"), covariate_shift=True, label_shift=True
    ),
    "pseudo-ensemble": Entry(
        "Pseudo-ensemble",
        pseudo_ensemble,
        ("members", "target_inputs"),
        corrects="member_logits",
        keeps_argmax=False,
        covariate_shift=True,
        label_shift=True,
    ),
    "atc": Entry("ATC", atc, ("source", "target_logits"), covariate_shift=True),
    "doc": Entry("DoC", doc, ("source", "target_logits"), covariate_shift=True),
    "oracle": Entry(
        "Oracle", oracle, ("target_logits", "target_labels"), covariate_shift=True, label_shift=True
    ),
}


def comparison_table() -> str:
    """Table 1 of the paper for all calibrators, as Markdown.

    >>> print(comparison_table().splitlines()[2])
    | No calibration | no | no | yes | yes | yes |
    """
    rows = []
    for entry in CALIBRATORS.values():
        promises = {
            "covariate shift": entry.covariate_shift,
            "label shift": entry.label_shift,
            "same predictions": entry.keeps_argmax,
            "no extra training": not entry.extra_training,
            "no source data": not entry.source_data,
        }
        rows.append([entry.title, *("yes" if kept else "no" for kept in promises.values())])
    return _markdown(["method", *promises], rows)


def needs_table() -> str:
    """The parts that each calibrator needs, as Markdown.

    >>> print(next(row for row in needs_table().splitlines() if "TempScal" in row))
    | tempscal | TempScal | labelled source validation logits | target logits |
    """
    rows = [
        [
            name,
            entry.title,
            "; ".join(PARTS[part] for part in entry.needs) or "nothing",
            PARTS[entry.corrects] if entry.corrects else "gives target logits itself",
        ]
        for name, entry in CALIBRATORS.items()
    ]
    return _markdown(["name", "method", "is given", "corrects"], rows)


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
