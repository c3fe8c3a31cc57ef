"""DoC: the accuracy that the difference of confidences forecasts, as a calibrator (Guillory et al., ICCV 2021).

As much as the mean confidence falls from source to target, so much is the accuracy taken to fall. One temperature then
brings the mean target confidence to that accuracy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.arrays import Labelled
from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.confidence import checked, confidences, match_confidence
from pseudocal.scaling import fit_temperature


def doc(source: Labelled, target_logits: ArrayLike) -> Calibration:
    """The temperature at which the mean target confidence is the accuracy that DoC forecasts.

    Args:
        source: labelled source validation logits.
        target_logits: logits of target data, `(n, classes)`.

    """
    return Calibration("doc", match_confidence(target_logits, doc_accuracy(source, target_logits)))


def doc_accuracy(source: Labelled, target_logits: ArrayLike) -> float:
    """Forecast the target accuracy: source accuracy, less the fall of the mean confidence.

    Three of four source rows are right, which temperature scaling turns into a confidence of 3/4 at gap 2; at gap 1
    the odds are the root of 3 instead of 3, and the confidence is 0.634:

    >>> source = Labelled(np.array([[2.0, 0.0]] * 4), np.array([0, 0, 0, 1]))
    >>> round(doc_accuracy(source, [[1.0, 0.0]]), 4)
    0.634

    Confidence is taken after temperature scaling on the source. It could be left out for a source-calibrated model:
    the forecast is then the target's own mean confidence, and so DoC is close to TempScal wherever that fits well.

    Args:
        source: labelled source validation logits.
        target_logits: logits of target data, `(n, classes)`.

    """
    source = checked(source)
    temperature = fit_temperature(source.logits, source.labels).temperature
    right = float((source.logits.argmax(axis=1) == source.labels).mean())
    fall = confidences(source.logits, temperature).mean() - confidences(target_logits, temperature).mean()
    return float(np.clip(right - fall, 0.0, 1.0))
