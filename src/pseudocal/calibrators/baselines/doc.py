"""DoC, difference of confidences, as a calibrator (Guillory et al., ICCV 2021).

The accuracy is assumed to drop from source to target by as much as the mean confidence does. A
temperature then matches the mean target confidence to that accuracy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.arrays import Labelled
from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.confidence import checked, confidences, match_confidence
from pseudocal.scaling import fit_temperature


def doc(source: Labelled, target_logits: ArrayLike) -> Calibration:
    """The temperature at which the mean target confidence equals the accuracy that DoC estimates.

    Args:
        source: Labelled logits of the source validation set.
        target_logits: Logits of the target, of shape `(n, classes)`.

    """
    return Calibration("doc", match_confidence(target_logits, doc_accuracy(source, target_logits)))


def doc_accuracy(source: Labelled, target_logits: ArrayLike) -> float:
    """Estimate the target accuracy: source accuracy minus the drop in mean confidence.

    Three of four source rows are right, so temperature scaling gives a confidence of 3/4 at a logit
    gap of 2. At a gap of 1 the odds are the square root of 3 instead of 3, and the confidence is
    0.634:

    >>> source = Labelled(np.array([[2.0, 0.0]] * 4), np.array([0, 0, 0, 1]))
    >>> round(doc_accuracy(source, [[1.0, 0.0]]), 4)
    0.634

    Confidences are computed after temperature scaling on the source. For a model that is calibrated
    on the source the estimate is the mean target confidence itself, so DoC is close to TempScal if
    that fits well.

    Args:
        source: Labelled logits of the source validation set.
        target_logits: Logits of the target, of shape `(n, classes)`.

    """
    source = checked(source)
    temperature = fit_temperature(source.logits, source.labels).temperature
    accuracy = float((source.logits.argmax(axis=1) == source.labels).mean())
    drop = (
        confidences(source.logits, temperature).mean()
        - confidences(target_logits, temperature).mean()
    )
    return float(np.clip(accuracy - drop, 0.0, 1.0))
