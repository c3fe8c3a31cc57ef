"""ATC and DoC: estimate the target accuracy, then match the mean confidence to it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from pseudocal.arrays import Labelled
from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.confidence import checked, confidences, match_confidence
from pseudocal.scaling import fit_temperature


def atc(source: Labelled, target_logits: ArrayLike) -> Calibration:
    """Average thresholded confidence (Garg et al., ICLR 2022) as a calibrator.

    The temperature at which the mean target confidence equals the accuracy that ATC estimates.

    Args:
        source: Labelled logits of the source validation set.
        target_logits: Logits of the target, of shape `(n, classes)`.

    """
    return Calibration("atc", match_confidence(target_logits, atc_accuracy(source, target_logits)))


def atc_accuracy(source: Labelled, target_logits: ArrayLike) -> float:
    """Estimate the target accuracy: the fraction of target rows above a confidence threshold.

    The threshold is such that the fraction of source rows above it equals the source accuracy.

    Two of four source rows are right, so the threshold is between the logit gaps 2 and 3; three of
    four target rows are above it:

    >>> logits = np.array([[4.0, 0.0], [3.0, 0.0], [2.0, 0.0], [1.0, 0.0]])
    >>> source = Labelled(logits, np.array([0, 0, 1, 1]))
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


def doc(source: Labelled, target_logits: ArrayLike) -> Calibration:
    """Difference of confidences (Guillory et al., ICCV 2021) as a calibrator.

    The temperature at which the mean target confidence equals the accuracy that DoC estimates.

    Args:
        source: Labelled logits of the source validation set.
        target_logits: Logits of the target, of shape `(n, classes)`.

    """
    return Calibration("doc", match_confidence(target_logits, doc_accuracy(source, target_logits)))


def doc_accuracy(source: Labelled, target_logits: ArrayLike) -> float:
    """Estimate the target accuracy: source accuracy minus the drop in mean confidence.

    The accuracy is assumed to drop from source to target by as much as the mean confidence does.

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
    on_source = confidences(source.logits, temperature).mean()
    on_target = confidences(target_logits, temperature).mean()
    drop = on_source - on_target
    return float(np.clip(accuracy - drop, 0.0, 1.0))
