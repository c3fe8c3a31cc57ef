"""CPCS and TransCal: source rows that are weighted to represent the target.

- `density_ratio`: the weights, p_target(x) / p_source(x).
- CPCS: temperature scaling on the weighted rows (Park et al., AISTATS 2020).
- TransCal: match the confidence to an estimate of the target accuracy with reduced bias and
  variance (Wang et al., NeurIPS 2020).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pseudocal.arrays import Floats, InputError, Labelled, as_numpy, as_weights, is_real, softmax
from pseudocal.calibrators.baselines.scaling import tempscal
from pseudocal.calibrators.baselines.search import bound_at, least, released
from pseudocal.calibrators.calibration import Calibration
from pseudocal.calibrators.confidence import below_top, checked, confidences, match_confidence
from pseudocal.passes import block_starts, let_go
from pseudocal.scaling import TemperatureScaling

Features = NDArray[Any]  # (n, features), real numbers of any precision
Chunks = Iterable[tuple[slice, Floats]]  # the numbers of some rows, and these rows in float64

LARGEST_LOG_RATIO = 100.0  # |log ratio| is clipped to this, so that its exponential is finite
SMALLEST_GAIN = 64 * np.finfo(np.float64).eps  # the search ends below this relative improvement
CONSTANT = 1e-12  # a spread of this fraction of the mean is rounding
MOST_STEPS = 1000  # steps of the optimiser; standardised features take about 20
KEPT_NUMBERS = 1 << 22  # features up to this number are kept in float64 during a fit


@dataclass(frozen=True, eq=False)
class DensityRatio:
    """The ratio of target to source density, as exp of a linear function of the features.

    >>> DensityRatio(np.array([np.log(2.0), 0.0]), 0.0)(np.array([[1.0, 5.0], [-1.0, 5.0]]))
    array([2. , 0.5])

    Attributes:
        slope: The weight of each feature, of shape `(features,)`.
        offset: The intercept.

    """

    slope: Floats
    offset: float

    def __call__(self, features: ArrayLike) -> Floats:
        """The ratio for each row of features `(n, features)`."""
        x = as_features(features, "features")
        if x.shape[1] != len(self.slope):
            raise InputError(f"expected rows of {len(self.slope)} features, got shape {x.shape}")
        log_ratio: Floats = np.empty(len(x))
        for rows, chunk in _chunks(x):
            log_ratio[rows] = chunk @ self.slope + self.offset
        ratio: Floats = np.exp(np.clip(log_ratio, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO))
        return ratio


def density_ratio(
    source_train_features: ArrayLike,
    target_features: ArrayLike,
    *,
    reference: bool = False,
    seed: int = 0,
) -> DensityRatio:
    """Fit the density ratio to features of the source training set and of the target.

    A classifier of the domain gives the ratio: with equally many rows of each domain,
    P(target | x) / P(source | x) = p_target(x) / p_source(x). As in both papers, the classifier is
    a logistic regression on the model's features. Features are read in chunks: beside them it needs
    some megabytes, at any number of rows.

    Both domains have the same weight whatever their number of rows, and features are standardised.

    For two normal densities of unit variance with means 0 and 1 the log ratio is x - 1/2:

    >>> rng = np.random.default_rng(0)
    >>> ratio = density_ratio(rng.normal(0, 1, (4000, 1)), rng.normal(1, 1, (9000, 1)))
    >>> bool(abs(ratio.slope[0] - 1) < 0.1), abs(ratio.offset + 0.5) < 0.1
    (True, True)

    Args:
        source_train_features: Features of the source training set, of shape `(n, features)`.
        target_features: Features of the target, of shape `(m, features)`.
        reference: Whether to do as the released code of TransCal and PseudoCal: raw features, the
            smaller set replaced by a bootstrap sample of the size of the larger one, and 100 steps.
        seed: The seed of that bootstrap sample (the released code uses none).

    """
    source = as_features(source_train_features, "source features")
    target = as_features(target_features, "target features")
    if source.shape[1] != target.shape[1]:
        raise InputError(
            f"expected as many target as source features, {source.shape[1]}, got {target.shape[1]}"
        )
    if reference:
        drawn = _equally_many(len(source), len(target), np.random.default_rng(seed))
        raw = np.zeros(source.shape[1])
        return _logistic((source, target), drawn, mean=raw, scale=raw + 1, steps=100)
    rows = len(source) + len(target)
    alike = (np.ones(len(source)), np.full(len(target), len(source) / len(target)))
    weights = tuple(each * (rows / 2 / len(source)) for each in alike)
    mean, scale = _moments(source, target)
    return _logistic((source, target), weights, mean=mean, scale=scale, steps=MOST_STEPS)


def as_features(features: ArrayLike, what: str) -> Features:
    """Check that features are finite numbers `(n, features)`; they keep their precision."""
    given = as_numpy(features, what)
    if not is_real(given) and given.dtype != bool:
        raise InputError(f"expected {what} that are real numbers, got dtype {given.dtype}")
    if given.dtype == bool:
        given = given.astype(np.uint8)
    if given.ndim != 2 or given.size == 0:
        raise InputError(f"expected {what} of shape (n, features), got shape {given.shape}")
    for rows, chunk in _chunks(given):
        bad = ~np.isfinite(chunk)
        if bad.any():
            raise InputError(
                f"expected {what} that are finite, got {chunk[bad][0]} "
                f"in row {rows.start + np.argmax(bad.any(axis=1))}"
            )
    return given


def _chunks(features: Features) -> Chunks:
    """Some rows at a time in float64, with their numbers; a copy of all could exceed memory."""
    starts = block_starts(features.shape)
    for start in starts:
        rows = slice(start, min(start + starts.step, len(features)))
        yield rows, features[rows].astype(np.float64)
        let_go(features, rows.start, rows.stop)


def _moments(source: Features, target: Features) -> tuple[Floats, Floats]:
    """Return the mean and the standard deviation of each feature over both domains."""
    rows = len(source) + len(target)
    mean = np.zeros(source.shape[1])
    for domain in (source, target):
        for _, chunk in _chunks(domain):
            mean += chunk.sum(axis=0) / rows
    variance = np.zeros(source.shape[1])
    for domain in (source, target):
        for _, chunk in _chunks(domain):
            chunk -= mean
            variance += np.einsum("ij,ij->j", chunk, chunk) / rows
    scale = np.sqrt(variance)
    # a constant feature carries no information, whatever it is divided by
    scale[scale <= CONSTANT * abs(mean)] = 1.0
    return mean, scale


def _equally_many(
    source: int, target: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], ...]:
    """Return how often each row counts if the smaller set is replaced by a bootstrap sample.

    The sample has the size of the larger set. Sets of equal size, which crash the released code,
    are kept.
    """
    counts = [np.ones(source), np.ones(target)]
    if source != target:
        smaller = 0 if source < target else 1
        few = min(source, target)
        drawn = rng.integers(few, size=max(source, target))
        counts[smaller] = np.bincount(drawn, minlength=few).astype(np.float64)
    return tuple(counts)


def _logistic(
    domains: tuple[Features, Features],
    weights: tuple[Floats, ...],
    *,
    mean: Floats,
    scale: Floats,
    steps: int,
) -> DensityRatio:
    """Fit a logistic regression of the domain to (features - mean) / scale.

    The penalty, the search and its tolerance are those of scikit-learn, whose memory is several
    copies of the features; here it is one chunk.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    total = sum(float(each.sum()) for each in weights)

    def centred(features: Features) -> Chunks:
        for rows, chunk in _chunks(features):
            chunk -= mean
            yield rows, chunk

    small = sum(each.size for each in domains) <= KEPT_NUMBERS
    kept = [list(centred(each)) for each in domains] if small else None

    def objective(at: Floats) -> tuple[float, Floats]:
        slope = at[:-1] / scale
        loss = 0.5 * float(at[:-1] @ at[:-1])
        gradient = np.append(at[:-1], 0.0)
        chunks: Iterable[Chunks] = kept or [centred(each) for each in domains]
        for domain, weight, sign in zip(chunks, weights, (1.0, -1.0), strict=True):
            for rows, chunk in domain:
                margin = sign * (chunk @ slope + at[-1])  # large and positive: wrong
                loss += float(weight[rows] @ np.logaddexp(0.0, margin))
                pull = sign * weight[rows] * expit(margin)
                gradient[:-1] += (pull @ chunk) / scale
                gradient[-1] += pull.sum()
        return loss / total, gradient / total

    found = minimize(
        objective,
        np.zeros(len(mean) + 1),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": steps, "maxls": 50, "gtol": 1e-4, "ftol": SMALLEST_GAIN},
    )
    slope: Floats = found.x[:-1] / scale
    return DensityRatio(slope, float(found.x[-1] - mean @ slope))


def cpcs(source: Labelled, ratio: ArrayLike, *, reference: bool = False) -> Calibration:
    """CPCS: the temperature that minimises the weighted Brier score on source rows.

    Under covariate shift, where p(y | x) is the same in both domains, source rows weighted by
    p_target(x) / p_source(x) represent the target. The Brier score is an upper bound on the
    calibration error.

    Wrong predictions have weight zero here, so the logits cannot be overconfident and T is at its
    lower bound:

    >>> source = Labelled(np.array([[2.0, 0.0]] * 4), np.array([0, 0, 1, 1]))
    >>> cpcs(source, [1.0, 1.0, 0.0, 0.0]).temperature < 0.1
    True

    Three quarters of the weight are right, so the gap of 2 should be log 3, and T = 2 / log 3:

    >>> round(cpcs(source, [3.0, 3.0, 1.0, 1.0]).temperature, 4)
    1.8205

    Args:
        source: Labelled logits of the source validation set.
        ratio: The density ratio of each source row, such as `density_ratio(...)(source_features)`.
        reference: Whether to search as the released code does, which may stop near its starting
            point, T = 2.

    """
    source = checked(source)
    loss = _weighted_brier(source, as_weights(ratio, len(source)))
    if reference:
        scaling = TemperatureScaling(released(loss), rows=len(source))
    else:
        temperature = least(loss, points=65, places=1)
        scaling = TemperatureScaling(temperature, rows=len(source), bound=bound_at(temperature))
    return Calibration("cpcs", scaling, {"reference": reference})


def _weighted_brier(source: Labelled, weights: Floats) -> Callable[[float], float]:
    """The weighted Brier score as a function of the temperature.

    That is the weighted mean of sum_c (p_c - y_c)^2 = sum_c p_c^2 - 2 p_y + 1.
    """
    below = below_top(source.logits)
    row = np.arange(len(source))
    fraction = weights / weights.sum()

    def loss(temperature: float) -> float:
        # finite at negative temperatures too, which the released search tries
        p = softmax(below / temperature)
        return float(fraction @ (np.einsum("ij,ij->i", p, p) - 2 * p[row, source.labels] + 1))

    return loss


def transcal(
    source: Labelled,
    ratio: ArrayLike,
    target_logits: ArrayLike,
    *,
    bias: bool = True,
    variance: bool = True,
    exponent: float = 0.5,
    reference: bool = False,
    start: float = 2.0,
) -> Calibration:
    """TransCal: match the mean target confidence to one minus the estimated target error.

    The target error is estimated from source errors, weighted by the density ratio w:

    - bias: w^exponent, with an exponent below one, limits the influence of a few large weights;
    - variance: two control variates with known means: the weights (1), then the accuracy (the mean
      confidence after temperature scaling on the source).

    Half of the source rows are wrong, but with a third of the weight of the others, so the target
    accuracy is 3/4:

    >>> source = Labelled(np.array([[2.0, 0.0]] * 4), np.array([0, 0, 1, 1]))
    >>> plain = transcal(source, [1.5, 1.5, 0.5, 0.5], [[2.0, 0.0]], bias=False, variance=False)
    >>> round(plain.temperature, 4), round(2 / math.log(3), 4)
    (1.8205, 1.8205)

    The paper fits the exponent together with T from one equation, which every exponent solves with
    its own T, so the result depends on the path of the search. Here the exponent is fixed, at the
    value where that search starts.

    Args:
        source: Labelled logits of the source validation set.
        ratio: The density ratio of each source row, such as `density_ratio(...)(source_features)`.
        target_logits: Logits of the target, of shape `(n, classes)`.
        bias: Whether to reduce the bias, by raising the ratio to the power of `exponent`.
        variance: Whether to reduce the variance, with the control variates.
        exponent: The exponent, between 0 and 1.
        reference: Whether to search as the released code does: for T and the exponent, from
            `(start, 0.5)`, with T >= 1.
        start: The temperature where the released search starts; 2 in the released code.

    """
    if start < 1:
        raise InputError(f"expected a start of at least 1, got {start}")
    if not 0 <= exponent <= 1:
        raise InputError(f"expected an exponent between 0 and 1, got {exponent}")
    source = checked(source)
    temperature = tempscal(Labelled(source.logits, source.labels), reference=reference).temperature
    still = math.nan if reference else 0.0  # the released code divides by zero here
    errors = _TargetError(source, as_weights(ratio, len(source)), temperature, variance, still)
    settings = {"bias": bias, "variance": variance, "exponent": exponent, "reference": reference}
    if reference:
        settings["start"] = start
        scaling = _transcal_as_released(errors, target_logits, bias, start)
        return Calibration("transcal", scaling, settings)
    error = errors.estimate(exponent if bias else 1.0)
    return Calibration("transcal", match_confidence(target_logits, 1 - error), settings)


class _TargetError:
    """An estimate of the target error from source errors and their weights."""

    def __init__(
        self, source: Labelled, weights: Floats, temperature: float, variance: bool, still: float
    ) -> None:
        self.wrong: Floats = (source.logits.argmax(axis=1) != source.labels).astype(np.float64)
        self.weights = weights
        self.variance = variance
        self.still = still
        self.confidence = float(confidences(source.logits, temperature).mean())

    def estimate(self, exponent: float) -> float:
        """The estimated error rate on the target."""
        weights = self.weights**exponent
        errors: Floats = weights * self.wrong
        if not self.variance:
            return float(errors.mean())
        errors = controlled(errors, weights, 1.0, still=self.still)
        return float(controlled(errors, 1 - self.wrong, self.confidence, still=self.still).mean())


def controlled(values: Floats, by: Floats, mean: float, *, still: float = 0.0) -> Floats:
    """Reduce the variance of values with a control variate: a correlated variable of known mean.

    Here the values are a linear function of the variable, so each becomes the value at the known
    mean:

    >>> controlled(np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 2.0]), 0.5)
    array([1.5, 1.5, 1.5])

    If the variable is constant (all weights equal, or all source rows right), its slope is `still`.
    """
    spread = by - by.mean()
    square = float(spread @ spread)
    if square > np.finfo(np.float64).eps * len(by):
        slope = float(spread @ values) / square
    else:
        slope = still
    return values - slope * (by - mean)


def _transcal_as_released(
    errors: _TargetError, target_logits: ArrayLike, bias: bool, start: float
) -> TemperatureScaling:
    from scipy.optimize import minimize

    below = below_top(target_logits)

    def gap(at: Floats) -> float:
        temperature, exponent = at
        confidence = float((1 / np.exp(below / temperature).sum(axis=1)).mean())
        return abs(confidence - (1 - errors.estimate(float(exponent) if bias else 1.0)))

    found = minimize(gap, np.array([start, 0.5]), method="SLSQP", bounds=[(1.0, None), (0.0, 1.0)])
    return TemperatureScaling(float(found.x[0]), rows=len(below))
