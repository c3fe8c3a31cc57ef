"""Inputs that cannot be mixed, such as texts.

They are predicted, nothing is fitted, and the verdict says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pseudocal.arrays import InputError, Labelled, Predictor
from pseudocal.batches import Batch, count
from pseudocal.calibrators.accuracy_estimate import AccuracyEstimate
from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.confidence import confidences
from pseudocal.calibrators.evidence import Evidence, Step
from pseudocal.calibrators.pseudocal import NO_MIXUP
from pseudocal.calibrators.trust import Trust
from pseudocal.scaling import TemperatureScaling

WITHOUT_MIXUP = (
    "{} So nothing was fitted: T = 1, and the confidences are those of the model. Nothing here says how far to trust "
    "them; twenty answers of a person do, and calibrate the model."
)


def unmixed_steps(predict: Predictor, batches: Iterable[Batch]) -> Iterator[Step]:
    """Predict the inputs of each batch; there are no pairs and no mixup samples.

    Args:
        predict: The model.
        batches: The inputs.

    """
    for batch in batches:
        logits = predict(batch.inputs)
        if logits.ndim != 2:
            raise InputError(
                f"expected one class for each input that cannot be mixed, got logits {logits.shape}"
            )
        real = Labelled(logits, logits.argmax(axis=1))
        yield Step(
            batch.rows, tuple(batch.inputs.shape[1:]), real, 0, NO_MIXUP, (), count(batch.inputs)
        )


def unmixed_calibration(evidence: Evidence, settings: dict[str, Any], why: str) -> Calibration:
    """Conclude from steps without mixup samples.

    A temperature of one, a verdict of caution, and no estimate to speak of.

    Args:
        evidence: What the steps add up to.
        settings: The settings for the record of the run.
        why: Why nothing was mixed, as a sentence.

    """
    confidence = float(confidences(evidence.real.labelled.logits).mean())
    known = {"confidence before": confidence, "confidence after": confidence, "mixup_samples": 0.0}
    trust = Trust(
        "caution", (WITHOUT_MIXUP.format(why),), AccuracyEstimate(confidence, 0.0, 1.0), known
    )
    return Calibration("none", TemperatureScaling(1.0), settings, evidence.counts, trust=trust)
