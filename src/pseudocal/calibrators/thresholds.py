"""Accept a prediction only when the model is confident: thresholds with an error limit.

Rows are ranked by confidence. With a second model, rows on which both models predict the same class
rank before all others. A threshold accepts the rows from the top of this ranking down to some row.
At most `max_error` of the accepted predictions, the error limit, may be wrong.

**With labels the error limit is guaranteed.** Candidates are the top 1%, 2%, ..., 100% of the rows
that the labels were drawn from. They are fixed before any label is known. They are tested from the
smallest to the largest, beginning with the first that has enough labels to pass without an error
(45 for 5%). A candidate with n labels, k of them errors, passes if a model with an error rate of
`max_error` makes k errors or fewer in at most 10% of draws: P(Binomial(n, max_error) <= k) <= 0.1.
This is the same as: the one-sided 90% Clopper-Pearson bound is at most `max_error`. The first
candidate that fails ends the tests, and the last that passed is the threshold.

What holds: if the labelled rows are a random sample of the target (or of a fixed pool of its rows),
then with a probability of at least 90% over that sample, at most `max_error` of the accepted rows
of the target are wrong.

1. Given how many labels fall into a candidate, these are a random sample of its rows, so the
   number of errors is binomial or, as rows are drawn without replacement, less dispersed.
2. The limit can only be exceeded if the first candidate with too many errors passes. That has a
   probability of at most 10%, so several tests need no correction (fixed-sequence testing).
3. Where the tests begin depends on how many labels fall into a candidate. As long as no error is
   allowed, passing takes N = 45 right labels before the first error. The errors do not depend on
   where the right labels are, so the probability is at most (1 - max_error)^N <= 10% there too.

The ranking must not be fitted to the same labels. If it is, as after `refine`, the guarantee is no
longer exact; docs/howto/thresholds.md has the measured rate. Rows spread by `rows_to_label` are not
independent, so their threshold is "measured" and not "guaranteed" (same page). Rows labelled `CANNOT_TELL`
are skipped: the guarantee is about rows that a person can label. It is about the target, and about
later inputs only as far as they come from where the target came from.

**Without labels the error is an estimate**: the mean calibrated confidence of the accepted rows is
at least 1 - `max_error`. It inherits every error of the calibration.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import InputError, as_numpy, is_integer, is_real
from pseudocal.calibrators.labels import CANNOT_TELL, LabelSample, RowNumbers

Basis = Literal["guaranteed", "measured", "estimated", "none"]
Light = Literal["guaranteed", "measured", "estimated", "not enough labels"]

LEVEL = 0.9  # the probability with which a guarantee holds
CANDIDATES = 100  # tested thresholds; of 20, 50, 100 and 400 the least that lost nothing
# a pool reaches to this many times the error limit: of 1, 1.5, 2 and 3 the best
POOL_ERROR = 1.5
SMALLEST_POOL = 200  # rows, if there are as many
PROBABLY = 0.8  # the probability that as many labels as recommended suffice
MOST_ERRORS = 30  # considered when labels are recommended
PRIOR_ERRORS = 2.0  # errors, as expected, that each class gets in addition to its own
FEWEST_OF_CLASS = 10  # labels of a class from which on its estimate is called one


class Candidate(NamedTuple):
    """A threshold that was tested with labels.

    Attributes:
        coverage: The fraction of rows that it accepts.
        labels: The number of labels of these rows.
        errors: The number of wrong predictions among them.
        bound: The 90% Clopper-Pearson bound of the error; it passes if this is at most the limit.

    """

    coverage: float
    labels: int
    errors: int
    bound: float


@dataclass(frozen=True)
class Threshold:
    """The confidence from which on predictions are accepted, and what its error limit rests on.

    Attributes:
        max_error: The error limit: the fraction of the accepted predictions that may be wrong.
        basis: "guaranteed" with a probability of 90%, "measured" if the labels pass the same test
            but are no random sample, so that the probability is not proven, "estimated" without
            labels, or "none": no prediction is accepted.
        confidence: The least accepted confidence; None if nothing is accepted. With a second model
            it applies where the models agree.
        if_disagree: With a second model, the least accepted confidence where the models disagree;
            None if nothing is accepted there.
        agreement: Whether rows on which a second model agrees rank first.
        coverage: The fraction of rows accepted.
        expected_error: The mean of 1 - confidence over the accepted rows; None if there are none.
        labels: The number of labels that were tested: those of accepted rows.
        errors: The number of wrong predictions among them.
        labels_needed: How many labels, drawn from `threshold_pool`, would probably give a
            guarantee; None if there is one already, or if no number is expected to.
        candidates: The thresholds that were tested, from the most confident; all but the last
            passed, or all.

    """

    max_error: float
    basis: Basis
    confidence: float | None
    if_disagree: float | None
    agreement: bool
    coverage: float
    expected_error: float | None
    labels: int = 0
    errors: int = 0
    labels_needed: int | None = None
    candidates: tuple[Candidate, ...] = ()

    @property
    def bound(self) -> float | None:
        """The 90% bound of the error of the accepted rows; None if no labels passed."""
        if self.basis not in ("guaranteed", "measured"):
            return None
        return next(one.bound for one in self.candidates if one.coverage == self.coverage)

    def accepts(self, confidence: ArrayLike, agrees: ArrayLike | None = None) -> NDArray[np.bool_]:
        """Which predictions to accept.

        >>> Threshold(0.05, "estimated", 0.8, None, False, 0.5, 0.03).accepts([0.9, 0.7])
        array([ True, False])

        With a second model, 80% where both agree and nothing where they do not:

        >>> both = Threshold(0.05, "estimated", 0.8, None, True, 0.5, 0.03)
        >>> both.accepts([0.9, 0.9], agrees=[True, False])
        array([ True, False])

        Args:
            confidence: The calibrated confidence of each prediction, of shape `(n,)`.
            agrees: Whether a second model predicts the same class, of shape `(n,)`; None if the
                threshold was found without one.

        """
        c = as_numpy(confidence, "confidence")
        if self.agreement and agrees is None:
            raise InputError("expected agrees: this threshold was found with a second model")
        if self.confidence is None:
            return np.zeros(c.shape, dtype=bool)
        if not self.agreement:
            return c >= self.confidence
        least = math.inf if self.if_disagree is None else self.if_disagree
        return c >= np.where(as_numpy(agrees, "agrees"), self.confidence, least)


class ClassThreshold(NamedTuple):
    """The threshold of one predicted class.

    Attributes:
        number: The predicted class.
        light: "guaranteed" if the labels of this class alone suffice, "estimated" from ten labels
            of it, else "not enough labels": the estimate is then mostly that of the other classes.
        threshold: The threshold for predictions of this class.
        labels: The number of labels of predictions of this class.
        ratio: Its errors in relation to what the confidence expects, shrunk towards all classes.

    """

    number: int
    light: Light
    threshold: Threshold
    labels: int
    ratio: float


def find_threshold(
    predicted: ArrayLike,
    confidence: ArrayLike,
    max_error: float,
    labels: LabelSample | None = None,
    *,
    second: ArrayLike | None = None,
) -> Threshold:
    """The threshold that accepts most rows with at most `max_error` of them wrong.

    Five hundred rows at 99% and five hundred at 60%. Without labels, rows are accepted as long as
    the mean confidence is at least 95%:

    >>> predicted = np.zeros(1000, dtype=int)
    >>> confidence = np.repeat([0.99, 0.6], 500)
    >>> threshold = find_threshold(predicted, confidence, 0.05)
    >>> threshold.basis, threshold.confidence, threshold.coverage
    ('estimated', 0.99, 0.5)

    Of 100 labelled rows, 50 are at 99%, and all of these are right. 45 suffice, since
    0.95^45 = 0.0994 is at most 10%. The next candidate, 51% of the rows, includes all rows at 60%,
    of which half are wrong:

    >>> rows = np.arange(0, 1000, 10)
    >>> labels = LabelSample(rows, np.where((rows >= 500) & (rows % 20 == 0), 1, 0), "random")
    >>> threshold = find_threshold(predicted, confidence, 0.05, labels)
    >>> threshold.basis, threshold.confidence, threshold.labels, threshold.errors
    ('guaranteed', 0.99, 50, 0)

    With 40 labels nothing is guaranteed, whatever they say:

    >>> few = find_threshold(predicted, confidence, 0.05, LabelSample(rows[:40], [0] * 40, "random"))
    >>> few.basis, few.confidence, few.coverage
    ('none', None, 0.0)

    Args:
        predicted: The predicted class of each row of the target, of shape `(rows,)`.
        confidence: Its calibrated confidence, of shape `(rows,)`. It must not be fitted to `labels`.
        max_error: The fraction of the accepted predictions that may be wrong.
        labels: A person's labels. None for an estimate.
        second: The class that a second model predicts for each row, of shape `(rows,)`.

    """
    ranking = Ranking.of(predicted, confidence, second)
    _check_error(max_error)
    if labels is None:
        return _estimated(ranking, max_error)
    return _guaranteed(ranking, max_error, _Checked.of(ranking, labels))


def find_class_thresholds(
    predicted: ArrayLike,
    confidence: ArrayLike,
    max_error: float,
    labels: LabelSample,
    *,
    second: ArrayLike | None = None,
) -> list[ClassThreshold]:
    """A threshold for each predicted class, as far as labels allow.

    A class with enough labels gets a guarantee, which holds with 90% for each class by itself. Any
    other class gets an estimate: 1 - confidence times the class's ratio of observed to expected
    errors. The ratio is shrunk towards that of all classes, as if each class had two more expected
    errors that behave like all classes. It accepts no row below those that labels were drawn from.

    Fifty labels for class 0, all right, and one for class 1, wrong, at confidences of 98%. Overall,
    1 error was seen and 51 * 0.02 = 1.02 were expected, so the ratio is (1 + 2) / (1.02 + 2) = 0.99.
    Class 1 has (1 + 2 * 0.99) / (0.02 + 2) = 1.48 and an expected error of 1.48 * 2% = 3%:

    >>> predicted = np.repeat([0, 1], 500)
    >>> labels = LabelSample(np.arange(450, 501), [0] * 51, "random")
    >>> for found in find_class_thresholds(predicted, np.full(1000, 0.98), 0.05, labels):
    ...     print(found.number, found.light, found.threshold.confidence, round(found.ratio, 2))
    0 guaranteed 0.98 0.66
    1 not enough labels 0.98 1.48

    Args:
        predicted: The predicted class of each row of the target, of shape `(rows,)`.
        confidence: Its calibrated confidence, of shape `(rows,)`.
        max_error: The fraction of the accepted predictions that may be wrong.
        labels: A person's labels.
        second: The class that a second model predicts for each row, of shape `(rows,)`.

    """
    ranking = Ranking.of(predicted, confidence, second)
    _check_error(max_error)
    checked = _Checked.of(ranking, labels)
    overall = _ratio(checked.errors, checked.expected(ranking), 1.0)
    found = []
    for number in np.unique(ranking.predicted):
        rows = np.flatnonzero(ranking.predicted == number)
        of_class = ranking.subset(rows)
        its_labels = checked.subset(rows)
        ratio = _ratio(its_labels.errors, its_labels.expected(of_class), overall)
        threshold = _guaranteed(of_class, max_error, its_labels)
        light: Light = checked.basis
        if threshold.basis == "none":
            light = "not enough labels"
            if len(its_labels) >= FEWEST_OF_CLASS:
                light = "estimated"
            undrawn = np.flatnonzero(~its_labels.drawn_from[of_class.order])
            most = int(undrawn[0]) if len(undrawn) else len(of_class)
            threshold = _estimated(of_class, max_error, ratio, most=most)
        found.append(ClassThreshold(int(number), light, threshold, len(its_labels), ratio))
    return found


def threshold_pool(
    predicted: ArrayLike,
    confidence: ArrayLike,
    max_error: float,
    *,
    second: ArrayLike | None = None,
) -> RowNumbers:
    """The rows to draw labels from if they are to decide on a threshold, in rank order.

    These are the rows down to where the expected error of all above reaches one and a half times
    the error limit, and at least 200. A random sample of them has more labels where the decision lies
    than a sample of all rows:

    >>> predicted = np.zeros(1000, dtype=int)
    >>> confidence = np.linspace(1, 0.5, 1000)
    >>> pool = threshold_pool(predicted, confidence, 0.05)
    >>> len(pool), round(float(1 - confidence[pool].mean()), 3)
    (300, 0.075)
    >>> rows = np.random.default_rng(0).permutation(pool)[:100]        # label these

    Pass the labels to `find_threshold` as `LabelSample(rows, labels, "random", pool=pool)`.

    Args:
        predicted: The predicted class of each row of the target, of shape `(rows,)`.
        confidence: Its calibrated confidence, of shape `(rows,)`.
        max_error: The fraction of the accepted predictions that may be wrong.
        second: The class that a second model predicts for each row, of shape `(rows,)`.

    """
    ranking = Ranking.of(predicted, confidence, second)
    _check_error(max_error)
    return ranking.order[: _pool_size(ranking, max_error)]


# ------------------------------------------------------------------------------ the ranking


@dataclass(frozen=True, eq=False)
class Ranking:
    """Rows by agreement, and then by confidence.

    >>> ranking = Ranking.of([0, 1, 1], [0.7, 0.9, 0.7], second=[0, 0, 1])
    >>> ranking.order, ranking.ends
    (array([0, 2, 1]), array([2, 3]))

    Attributes:
        predicted: The predicted class of each row, of shape `(rows,)`.
        confidence: Its confidence, of shape `(rows,)`.
        agrees: Whether the second model predicts the same class, of shape `(rows,)`; None without
            a second model.
        order: Row numbers, first those to accept first, of shape `(rows,)`.
        ends: The numbers of rows that a threshold can accept, rising: rows of equal rank are
            accepted together.

    """

    predicted: NDArray[np.int64]
    confidence: NDArray[np.float64]
    agrees: NDArray[np.bool_] | None
    order: RowNumbers
    ends: NDArray[np.intp]

    @classmethod
    def of(
        cls, predicted: ArrayLike, confidence: ArrayLike, second: ArrayLike | None = None
    ) -> Ranking:
        """Check the arrays, and rank their rows."""
        classes = as_numpy(predicted, "predicted classes")
        c = as_numpy(confidence, "confidence")
        if classes.ndim != 1 or len(classes) == 0 or not is_integer(classes):
            raise InputError(
                f"expected a predicted class for each row, got {classes.dtype} of shape "
                f"{classes.shape}"
            )
        if c.shape != classes.shape or not is_real(c):
            raise InputError(
                f"expected confidence of shape {classes.shape}, got {c.dtype} of shape {c.shape}"
            )
        if not bool(((c >= 0) & (c <= 1)).all()):
            raise InputError("expected confidence from 0 to 1")
        agrees = None
        if second is not None:
            others = as_numpy(second, "classes of the second model")
            if others.shape != classes.shape or not is_integer(others):
                raise InputError(
                    f"expected a class of the second model for each of {len(classes)} rows, got "
                    f"{others.dtype} of shape {others.shape}"
                )
            agrees = others == classes
        return cls._sorted(classes.astype(np.int64), c.astype(np.float64), agrees)

    @classmethod
    def _sorted(
        cls,
        predicted: NDArray[np.int64],
        confidence: NDArray[np.float64],
        agrees: NDArray[np.bool_] | None,
    ) -> Ranking:
        first = np.ones(len(predicted), dtype=bool) if agrees is None else agrees
        order = np.lexsort((-confidence, ~first))
        falling = confidence[order]
        side = first[order]
        last_of_equals = (np.diff(falling) != 0) | (np.diff(side) != 0)
        ends = np.append(np.flatnonzero(last_of_equals), len(order) - 1) + 1
        return cls(predicted, confidence, agrees, order, ends)

    def __len__(self) -> int:
        return len(self.order)

    def subset(self, rows: RowNumbers) -> Ranking:
        """The ranking of some rows, which are numbered anew."""
        agrees = None if self.agrees is None else self.agrees[rows]
        return self._sorted(self.predicted[rows], self.confidence[rows], agrees)

    def expected_errors(self) -> NDArray[np.float64]:
        """The mean of 1 - confidence over the first rows of the ranking, for each number of rows."""
        errors = np.cumsum(1 - self.confidence[self.order])
        return errors / np.arange(1, len(self) + 1)

    def least_confidences(self, end: int) -> tuple[float | None, float | None]:
        """The confidence that accepts the first `end` rows, and that where the models disagree."""
        if end == 0:
            return None, None
        last = self.order[end - 1]
        least = float(self.confidence[last])
        if self.agrees is None or self.agrees[last]:
            return least, None
        return 0.0, least


@dataclass(frozen=True, eq=False)
class _Checked:
    """Labelled predictions, and the rows that they were drawn from.

    Attributes:
        rows: Row numbers, of shape `(n,)`.
        wrong: Whether the predicted class is wrong, of shape `(n,)`.
        drawn_from: Whether a row could be drawn, of shape `(rows of the target,)`.
        basis: What a threshold that passes with these labels rests on.

    """

    rows: RowNumbers
    wrong: NDArray[np.bool_]
    drawn_from: NDArray[np.bool_]
    basis: Literal["guaranteed", "measured"]

    @classmethod
    def of(cls, ranking: Ranking, labels: LabelSample) -> _Checked:
        n = len(ranking)
        if labels.rows.min() < 0 or labels.rows.max() >= n:
            raise InputError(
                f"expected labels of rows 0 to {n - 1}, got rows {labels.rows.min()} to "
                f"{labels.rows.max()}"
            )
        drawn_from = np.ones(n, dtype=bool)
        if labels.pool is not None:
            if labels.pool.min() < 0 or labels.pool.max() >= n:
                raise InputError(f"expected a pool of rows 0 to {n - 1}")
            drawn_from[:] = False
            drawn_from[labels.pool] = True
        known = labels.labels != CANNOT_TELL
        rows = labels.rows[known]
        wrong = ranking.predicted[rows] != labels.labels[known]
        return cls(
            rows, wrong, drawn_from, "guaranteed" if labels.sampling == "random" else "measured"
        )

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def errors(self) -> int:
        """The number of wrong predictions."""
        return int(self.wrong.sum())

    def expected(self, ranking: Ranking) -> float:
        """The number of errors that the confidence expects."""
        return float((1 - ranking.confidence[self.rows]).sum())

    def subset(self, rows: RowNumbers) -> _Checked:
        """The labels of some rows, which are numbered anew."""
        number = np.full(len(self.drawn_from), -1, dtype=np.intp)
        number[rows] = np.arange(len(rows))
        kept = number[self.rows] >= 0
        return _Checked(
            number[self.rows[kept]], self.wrong[kept], self.drawn_from[rows], self.basis
        )


# ------------------------------------------------------------------------------ the error limit


def _estimated(
    ranking: Ranking, max_error: float, ratio: float = 1.0, *, most: int | None = None
) -> Threshold:
    """The threshold by the confidence alone, whose errors are multiplied by a ratio.

    At most the first `most` rows are accepted: below them no label was drawn, so that the ratio
    says nothing.
    """
    expected = np.minimum(ratio * ranking.expected_errors(), 1.0)[ranking.ends - 1]
    reached = len(ranking) if most is None else most
    possible = np.flatnonzero((expected <= max_error) & (ranking.ends <= reached))
    end = int(ranking.ends[possible[-1]]) if len(possible) else 0
    needed = _labels_needed(ranking, max_error, ratio)
    return _threshold(ranking, max_error, "estimated" if end else "none", end, needed=needed)


def _guaranteed(ranking: Ranking, max_error: float, checked: _Checked) -> Threshold:
    """The last candidate that passes before the first that fails."""
    from scipy.special import bdtr

    tests = _tests(ranking, max_error, checked)
    passes = bdtr(tests.errors, tests.labels, tests.allowed) <= 1 - LEVEL
    passed = int(np.argmin(np.append(passes, False)))  # before the first that fails
    # the fraction f of rows that could not be drawn, from what `_tests` makes of it
    fraction = (max_error - tests.allowed) / (1 - tests.allowed)
    tested = []
    for i in range(min(passed + 1, len(passes))):
        labels, errors = int(tests.labels[i]), int(tests.errors[i])
        bound = _upper_bound(errors, labels, undrawn=float(fraction[i]))
        tested.append(Candidate(int(tests.ends[i]) / len(ranking), labels, errors, bound))
    if passed:
        last = tested[passed - 1]
        end = int(tests.ends[passed - 1])
        counts = (last.labels, last.errors)
        return _threshold(ranking, max_error, checked.basis, end, counts, candidates=tested)
    counts = (len(checked), checked.errors)
    ratio = _ratio(checked.errors, checked.expected(ranking), 1.0)
    needed = _labels_needed(ranking, max_error, ratio)
    if needed is not None and needed <= len(checked):  # too few, as these labels show
        doubled = 10 * math.ceil(2 * len(checked) / 10)  # rounded up to ten
        doubled = min(doubled, _pool_size(ranking, max_error))
        needed = doubled if doubled > len(checked) else None
    return _threshold(ranking, max_error, "none", 0, counts, needed=needed, candidates=tested)


def _upper_bound(errors: int, labels: int, undrawn: float) -> float:
    """The 90% bound of the error, where a fraction of the rows could not be drawn.

    >>> round(_upper_bound(0, 45, undrawn=0.0), 4)
    0.0499
    """
    from scipy.special import betaincinv

    bound = 1.0
    if errors < labels:
        bound = float(betaincinv(errors + 1, labels - errors, LEVEL))
    return float(undrawn + (1 - undrawn) * bound)


class _Tests(NamedTuple):
    """What there is to test of each candidate, as arrays of shape `(candidates,)`."""

    ends: NDArray[np.intp]  # rows accepted
    labels: NDArray[np.int64]  # labels of these rows
    errors: NDArray[np.int64]  # wrong predictions among them
    allowed: NDArray[np.float64]  # the error rate to test


def _tests(ranking: Ranking, max_error: float, checked: _Checked) -> _Tests:
    """What there is to test of each candidate that has enough labels to pass without an error.

    Accepted rows that could not be drawn count as wrong: if they are a fraction f, the others may
    have an error rate of (max_error - f) / (1 - f).
    """
    labelled = np.zeros(len(ranking), dtype=np.int64)
    labelled[checked.rows] = 1
    wrong = np.zeros(len(ranking), dtype=np.int64)
    wrong[checked.rows] = checked.wrong
    undrawn = np.where(checked.drawn_from, 0.0, 1.0)
    ends = _candidate_ends(ranking, int(checked.drawn_from.sum()))
    labels = np.cumsum(labelled[ranking.order])[ends - 1]
    errors = np.cumsum(wrong[ranking.order])[ends - 1]
    fraction = np.cumsum(undrawn[ranking.order])[ends - 1] / ends
    # `max_error` keeps the denominator above 0 where no row could be drawn: nothing is allowed there
    allowed = np.maximum(max_error - fraction, 0) / np.maximum(1 - fraction, max_error)
    enough = (1 - allowed) ** labels <= 1 - LEVEL
    return _Tests(ends[enough], labels[enough], errors[enough], allowed[enough])


def _candidate_ends(ranking: Ranking, size: int) -> NDArray[np.intp]:
    """How many rows each candidate accepts: the top 1%, 2%, ... of the first `size` rows."""
    percent = np.arange(1, CANDIDATES + 1) / CANDIDATES
    wanted = np.maximum(np.ceil(percent * size), 1)
    return np.unique(ranking.ends[np.searchsorted(ranking.ends, wanted)])


def _threshold(
    ranking: Ranking,
    max_error: float,
    basis: Basis,
    end: int,
    counts: tuple[int, int] = (0, 0),
    *,
    needed: int | None = None,
    candidates: Sequence[Candidate] = (),
) -> Threshold:
    confidence, if_disagree = ranking.least_confidences(end)
    expected = None
    if end:
        expected = float(1 - ranking.confidence[ranking.order[:end]].mean())
    return Threshold(
        max_error=max_error,
        basis=basis,
        confidence=confidence,
        if_disagree=if_disagree,
        agreement=ranking.agrees is not None,
        coverage=end / len(ranking),
        expected_error=expected,
        labels=counts[0],
        errors=counts[1],
        labels_needed=needed,
        candidates=tuple(candidates),
    )


def _pool_size(ranking: Ranking, max_error: float) -> int:
    possible = np.flatnonzero(ranking.expected_errors() <= POOL_ERROR * max_error)
    size = int(possible[-1]) + 1 if len(possible) else 0
    return min(max(size, SMALLEST_POOL), len(ranking))


def _ratio(errors: int, expected: float, prior: float) -> float:
    """Observed over expected errors, shrunk towards a prior: the mean of a gamma posterior.

    >>> _ratio(4, 2.0, 1.0)                              # (4 + 2) / (2 + 2)
    1.5
    """
    return (errors + PRIOR_ERRORS * prior) / (expected + PRIOR_ERRORS)


def _labels_needed(ranking: Ranking, max_error: float, ratio: float) -> int | None:
    """How many labels from the pool would probably give a guarantee, in steps of ten.

    Each candidate is expected to have its mean of 1 - confidence, times a ratio, as its error rate.
    The least number of labels with which one of them passes with a probability of 80% is returned;
    None if the candidates are expected to be wrong too often, or if the pool has fewer rows.

    >>> ranking = Ranking.of(np.zeros(1000, dtype=int), np.full(1000, 0.99))
    >>> _labels_needed(ranking, 0.05, 1.0)               # 77 labels may have one error
    80
    """
    from scipy.special import bdtr

    size = _pool_size(ranking, max_error)
    ends = _candidate_ends(ranking, size)
    expected = np.minimum(ratio * ranking.expected_errors()[ends - 1], 1.0)
    labels = _labels_for(max_error)
    passes = bdtr(np.arange(MOST_ERRORS), labels, expected[:, None]) >= PROBABLY
    possible = passes.any(axis=1)
    if not possible.any():
        return None
    within = labels[passes[possible].argmax(axis=1)]
    total = within * size / np.minimum(ends[possible], size)
    needed = 10 * math.ceil(float(total.min()) / 10)
    return needed if needed <= size else None


@lru_cache
def _labels_for(max_error: float) -> NDArray[np.int64]:
    """The least numbers of labels that may have no error, one, two, ...

    >>> _labels_for(0.05)[:3]
    array([ 45,  77, 105])
    """
    from scipy.special import bdtr

    errors = np.arange(MOST_ERRORS)
    low = errors.astype(np.int64)  # fails: all would be errors
    high = np.ceil((errors + 1) * 4 / max_error).astype(np.int64)  # passes
    while (high - low > 1).any():
        middle = (low + high) // 2
        passes = bdtr(errors, middle, max_error) <= 1 - LEVEL
        high = np.where(passes, middle, high)
        low = np.where(passes, low, middle)
    return high


def _check_error(max_error: float) -> None:
    if not 0 < max_error < 1:
        raise InputError(
            f"expected a maximum error between 0 and 1, such as 0.05, got {max_error}",
            setting="max_error",
        )
