"""ATC: the accuracy that an average thresholded confidence forecasts, as a calibrator (Garg et al., ICLR 2022).

Find the confidence above which as many source rows lie as are right; call the target rows above it right. One
temperature then brings the mean confidence to that accuracy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.arrays import Labelled
from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.confidence import checked, confidences, match_confidence
from pseudocal.scaling import fit_temperature


def atc(source: Labelled, target_logits: ArrayLike) -> Calibration:
    """The temperature at which the mean target confidence is the accuracy that ATC forecasts.

    Args:
        source: labelled source validation logits.
        target_logits: logits of target data, `(n, classes)`.

    """
    return Calibration("atc", match_confidence(target_logits, atc_accuracy(source, target_logits)))


def atc_accuracy(source: Labelled, target_logits: ArrayLike) -> float:
    """Forecast the target accuracy: the share of target rows that are surer than the surest-so-many of the source.

    Two of four source rows are right, and two are surer than 2; three of four target rows are:

    >>> source = Labelled(np.array([[4.0, 0.0], [3.0, 0.0], [2.0, 0.0], [1.0, 0.0]]), np.array([0, 0, 1, 1]))
    >>> atc_accuracy(source, [[5.0, 0.0], [4.0, 0.0], [0.0, 3.0], [0.0, 1.0]])
    0.75

    Confidence is taken after temperature scaling on the source, as the paper recommends.

    Args:
        source: labelled source validation logits.
        target_logits: logits of target data, `(n, classes)`.

    """
    source = checked(source)
    temperature = fit_temperature(source.logits, source.labels).temperature
    sure = np.sort(confidences(source.logits, temperature))
    wrong = int((source.logits.argmax(axis=1) != source.labels).sum())
    threshold = sure[wrong] if wrong < len(sure) else np.inf
    return float((confidences(target_logits, temperature) >= threshold).mean())
