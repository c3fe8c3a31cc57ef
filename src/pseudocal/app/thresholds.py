"""The threshold of a run: which predictions to accept, and labels drawn to decide on it.

`threshold.json` in the run folder has the result, for a service to read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from pseudocal.app.records import decode_json, encode_json
from pseudocal.app.run import THRESHOLD, Run
from pseudocal.arrays import InputError
from pseudocal.calibrators import Calibration
from pseudocal.calibrators.confidence import confidences, predictions
from pseudocal.calibrators.labels import CANNOT_TELL, LabelSample, RowNumbers
from pseudocal.calibrators.thresholds import (
    LEVEL,
    ClassThreshold,
    Light,
    Threshold,
    find_class_thresholds,
    find_threshold,
    threshold_pool,
)
from pseudocal.calibrators.wording import count
from pseudocal.files import own_file

# how labels were drawn, as a labels file says it
FOR_THRESHOLD = re.compile(r"threshold ([0-9.e-]+)% at T=([0-9.e+-]+)")
DRAW_SEED = 0
# of the held-out models with an estimate at 5%, ranked by agreement and confidence:
# `benchmarks/thresholds.py held-out`, docs/evaluation/results/thresholds_held_out-1.csv
ESTIMATES_BROKEN = 0.74
LARGER_ERRORS = (0.02, 0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4)  # to propose instead
CLASSES_SHOWN = 20  # lines of the table by class in the terminal


class ThresholdDraw(NamedTuple):
    """How labels were drawn to decide on a threshold: all that is needed to draw them again.

    >>> str(ThresholdDraw(0.05, 1.25))
    'threshold 5% at T=1.25'
    >>> ThresholdDraw.parse("threshold 5% at T=1.25")
    ThresholdDraw(max_error=0.05, temperature=1.25)
    >>> ThresholdDraw.parse("winter")

    Attributes:
        max_error: the fraction of the accepted predictions that may be wrong.
        temperature: the temperature of the confidences that ranked the inputs.

    """

    max_error: float
    temperature: float

    def __str__(self) -> str:
        return f"threshold {in_percent(self.max_error)} at T={self.temperature:.6g}"

    @classmethod
    def parse(cls, text: str) -> ThresholdDraw | None:
        """Read what `str` wrote; None if it is something else."""
        match = FOR_THRESHOLD.fullmatch(text.strip())
        if match is None:
            return None
        try:
            return cls(float(f"{float(match[1]) / 100:.6g}"), float(match[2]))
        except ValueError:
            return None

    @classmethod
    def now(cls, run: Run, max_error: float) -> ThresholdDraw:
        """For the calibration in force."""
        temperature = run.calibration_in_force().temperature
        return cls(float(f"{max_error:.6g}"), float(f"{temperature:.6g}"))

    def rows(self, run: Run, n: int) -> tuple[RowNumbers, RowNumbers]:
        """The first `n` rows to label, and the pool that they are a random sample of."""
        predicted, confidence, second = predictions_of(run, self.temperature)
        pool = threshold_pool(predicted, confidence, self.max_error, second=second)
        if n > len(pool):
            raise InputError(
                f"expected at most {len(pool)} inputs to label, the candidates for this error "
                f"limit, got {n}",
                setting="n",
            )
        return np.random.default_rng(DRAW_SEED).permutation(pool)[:n], pool


@dataclass(frozen=True)
class ClassLine:
    """A line of the table of thresholds by class."""

    number: int  # the predicted class
    name: str  # its name, or its number
    light: Light  # "guaranteed", "measured", "estimated" or "not enough labels"
    # the least accepted confidence; None if nothing is accepted, or without enough labels
    confidence: float | None
    if_disagree: float | None  # the same where a second model predicts another class
    coverage: float  # the fraction of the predictions of this class that are accepted
    labels: int  # the labels of predictions of this class


@dataclass(frozen=True)
class RunThreshold(Threshold):
    """The threshold of a run, as `threshold.json` has it."""

    temperature: float = 1.0  # the temperature of the confidences
    level: float = LEVEL  # the probability with which a guarantee holds
    # the upper end of the interval of the error; None if no labels passed
    upper: float | None = None
    sampling: str | None = None  # how the labels were drawn; None without labels
    given: int = 0  # the number of labels given
    same_labels: bool = False  # whether the temperature was fitted to the same labels
    classes: tuple[ClassLine, ...] = ()  # the thresholds by class; empty without labels
    # if no number of labels is expected to give a guarantee: a larger error for which some does
    possible_error: float | None = None
    promise: str = ""  # all of this in a sentence

    @property
    def passed(self) -> bool:
        """Whether labels passed the test, proven or not."""
        return self.basis in ("guaranteed", "measured")

    @property
    def exact(self) -> bool:
        """Whether the probability is proven.

        The labels are a random sample, and the temperature was not fitted to them.
        """
        return self.sampling != "stratified" and not self.same_labels

    def accepted_rows(self, run: Run) -> NDArray[np.bool_]:
        """Which predictions of the run to accept."""
        predicted, confidence, second = predictions_of(run, self.temperature)
        agrees = None
        if self.agreement and second is not None:
            agrees = second == predicted
        return self.accepts(confidence, agrees)

    def save(self, folder: Path) -> None:
        """Write `threshold.json` into a folder."""
        encode_json(folder / THRESHOLD, self)


def threshold_of(
    run: Run,
    calibration: Calibration,
    max_error: float,
    labels: LabelSample | None = None,
    *,
    one_model: bool = False,
) -> RunThreshold:
    """The threshold of a run.

    Args:
        run: the run.
        calibration: the calibration in force.
        max_error: the fraction of the accepted predictions that may be wrong.
        labels: a person's labels; None for an estimate.
        one_model: whether to rank by confidence alone, though the run has a second model.

    """
    check_classifier(run)
    temperature = calibration.temperature
    predicted, confidence, second = predictions_of(run, temperature)
    if one_model:
        second = None
    find = partial(find_threshold, predicted, confidence, labels=labels, second=second)
    found = find(max_error=max_error)
    of_run = RunThreshold(**asdict(found), temperature=temperature, upper=found.bound)
    if labels is not None:
        by_class = find_class_thresholds(predicted, confidence, max_error, labels, second=second)
        of_run = replace(
            of_run,
            sampling="threshold" if labels.pool is not None else labels.sampling,
            given=int((labels.labels != CANNOT_TELL).sum()),
            same_labels=calibration.measured is not None and labels.pool is None,
            classes=tuple(_class_line(one, run.record.classes) for one in by_class),
        )
        if of_run.same_labels:
            of_run = _unproven(of_run)
    if not _is_within_reach(found):
        larger = (error for error in LARGER_ERRORS if error > max_error)
        possible = (error for error in larger if _is_within_reach(find(max_error=error)))
        of_run = replace(of_run, possible_error=next(possible, None))
    return replace(of_run, promise=promise(of_run))


def _unproven(found: RunThreshold) -> RunThreshold:
    """The same with nothing guaranteed: the temperature was fitted to the same labels."""
    classes = tuple(
        replace(one, light="measured") if one.light == "guaranteed" else one
        for one in found.classes
    )
    basis = "measured" if found.basis == "guaranteed" else found.basis
    return replace(found, basis=basis, classes=classes)


def _is_within_reach(found: Threshold) -> bool:
    """Whether labels passed, or some number of labels is expected to."""
    return found.bound is not None or found.labels_needed is not None


def _class_line(found: ClassThreshold, classes: Sequence[str]) -> ClassLine:
    """A line of the table; without enough labels, a class has no threshold."""
    number = found.number
    name = classes[number] if number < len(classes) else str(number)
    line = ClassLine(number, name, found.light, None, None, 0.0, found.labels)
    if found.light == "not enough labels":
        return line
    rule = found.threshold
    return replace(
        line, confidence=rule.confidence, if_disagree=rule.if_disagree, coverage=rule.coverage
    )


def stored_labels(folder: Path) -> int:
    """The number of labels behind the `threshold.json` of a folder; 0 without labels or file."""
    try:
        return decode_json(own_file(folder, THRESHOLD), RunThreshold, "a threshold").given
    except (InputError, OSError):  # there is none, or it is damaged
        return 0


def check_classifier(run: Run) -> None:
    """Refuse a segmentation model: its pixels are not independent, and a row is an image."""
    if run.pixels is not None:
        raise InputError("expected a run of a classifier, got one of a segmentation model")


def predictions_of(
    run: Run, temperature: float
) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.intp] | None]:
    """Predicted class and confidence of each row, and the class that the second model predicts."""
    second = None
    if run.record.second_models:
        said = run.second_logits[0]  # saved outputs may be predicted classes
        second = said.astype(np.intp) if said.ndim == 1 else predictions(said)
    return predictions(run.logits), confidences(run.logits, temperature), second


def in_percent(error: float) -> str:
    """A limit of the error as a percentage, as it was given.

    >>> in_percent(0.05), in_percent(0.0125)
    ('5%', '1.25%')
    """
    return f"{100 * error:.6g}%"


def promise(found: RunThreshold) -> str:
    """What a threshold promises, in a sentence.

    >>> print(promise(RunThreshold(0.05, "guaranteed", 0.9, None, False, 0.3, 0.02, 60, given=100)))
    At most 5% of the accepted predictions are wrong, with a probability of 90% (0 errors on 60
    accepted inputs with labels).
    """
    most = in_percent(found.max_error)
    if found.passed:
        about = "" if found.exact else "about "
        return (
            f"At most {most} of the accepted predictions are wrong, with a probability of "
            f"{about}{LEVEL:.0%} ({count(found.errors, 'error')} on {found.labels:,} accepted "
            "inputs with labels)."
        )
    if found.basis == "estimated":
        return (
            f"An estimated {most} of the accepted predictions are wrong. This threshold uses no labels. In "
            f"our tests, the true error was higher than estimated for {ESTIMATES_BROKEN:.0%} of "
            "models. Label inputs to get a guarantee."
        )
    if not found.given:
        return f"No threshold has an estimated error of at most {most}. Nothing is accepted."
    return (
        f"With {count(found.given, 'label')}, no threshold guarantees an error of at most {most}. "
        "Nothing is accepted."
    )


def threshold_lines(found: RunThreshold, run: Run) -> Iterator[str]:
    """What the terminal says of a threshold."""
    yield _rule(found, len(run.logits))
    yield found.promise
    if found.classes:
        lights = Counter(line.light for line in found.classes)
        yield "by class: " + ", ".join(f"{n} {light}" for light, n in lights.items())
        for line in found.classes[:CLASSES_SHOWN]:
            rule = ""
            if line.light != "not enough labels":
                least = "nothing" if line.confidence is None else f"from {line.confidence:.3f}"
                rule = f"{least}, {line.coverage:.1%} accepted, "
            yield f"  {line.name}: {rule}{line.light} ({count(line.labels, 'label')})"
        if len(found.classes) > CLASSES_SHOWN:
            yield f"  ... and {len(found.classes) - CLASSES_SHOWN} more in {THRESHOLD}"
    if found.passed:
        return
    if found.labels_needed is None:
        more = "improve the model"
        if found.possible_error is not None:
            more = f"allow more errors: --max-error {in_percent(found.possible_error)}"
        yield "No number of labels is expected to give a guarantee."
        yield f"Next: {more}"
        return
    most = in_percent(found.max_error)
    yield f"Next: pseudocal label {run.folder} --for-threshold {most} -n {found.labels_needed}"


def _rule(found: RunThreshold, rows: int) -> str:
    if found.confidence is None:
        return f"accept none of {rows:,} inputs"
    rule = f"accept {found.coverage:.1%} of {rows:,} inputs: confidence of at least "
    if not found.agreement:
        return rule + f"{found.confidence:.4f}"
    if found.if_disagree is None:
        return rule + f"{found.confidence:.4f} where both models agree"
    return rule + f"{found.if_disagree:.4f}, and all where both models agree"
