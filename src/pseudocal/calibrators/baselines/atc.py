"""ATC, average thresholded confidence, as a calibrator (Garg et al., ICLR 2022).

Choose the threshold so that the fraction of source rows with a higher confidence equals the source
accuracy. The fraction of target rows above it is the estimate of the target accuracy. A temperature
then matches the mean confidence to the estimate.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.arrays import Labelled
from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.confidence import checked, confidences, match_confidence
from pseudocal.scaling import fit_temperature


def atc(source: Labelled, target_logits: ArrayLike) -> Calibration:
    """The temperature at which the mean target confidence equals the accuracy that ATC estimates.

    Args:
        source: Labelled logits of the source validation set.
        target_logits: Logits of the target, of shape `(n, classes)`.

    """
    return Calibration("atc", match_confidence(target_logits, atc_accuracy(source, target_logits)))


def atc_accuracy(source: Labelled, target_logits: ArrayLike) -> float:
    """Estimate the target accuracy.

    The fraction of target rows whose confidence is above the threshold.

    Two of four source rows are right, so the threshold is between the logit gaps 2 and 3; three of
    four target rows are above it:

    >>> source = Labelled(np.array([[4.0, 0.0], [3.0, 0.0], [2.0, 0.0], [1.0, 0.0]]), np.array([0, 0, 1, 1]))
    >>> atc_accuracy(source, [[5.0, 0.0], [4.0, 0.0], [0.0, 3.0], [0.0, 1.0]])
    0.75

    Confidences are computed after temperature scaling on the source, as the paper recommends.

    Args:
        source: Labelled logits of the source validation set.
        target_logits: Logits of the target, of shape `(n, classes)`.

    """
    source = checked(source)
    temperature = fit_temperature(source.logits, source.labels).temperature
    ascending = np.sort(confidences(source.logits, temperature))
    wrong = int((source.logits.argmax(axis=1) != source.labels).sum())
    threshold = ascending[wrong] if wrong < len(ascending) else np.inf
    return float((confidences(target_logits, temperature) >= threshold).mean())
