"""Masked arrays, and values that are not numbers, at every argument that takes an array."""

from __future__ import annotations

import numpy as np
import pytest

from pseudocal import (
    Calibration,
    InputError,
    LabelSample,
    PseudoCal,
    TemperatureScaling,
    binary_logits,
    fit_matrix,
    fit_temperature,
    fit_vector,
    rows_to_label,
    softmax,
)
from pseudocal.arrays import Labelled
from pseudocal.calibrators import oracle
from pseudocal.calibrators.baselines.importance import density_ratio
from pseudocal.distributed import LocalExecutor
from pseudocal.extras import MissingExtraError
from pseudocal.metrics import Outcomes, Segmented, accuracy, bootstrap, classwise_ece
from pseudocal.predictors import Checked

N = 60
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(N, 3))
LABELS = RNG.integers(0, 3, N)
ONES = np.ones(N)
GROUPS = np.arange(N) // 2
MAPS = RNG.normal(size=(4, 3, 5, 5))
MASKS = RNG.integers(0, 3, (4, 5, 5))
OUTCOMES = Outcomes.from_logits(LOGITS, LABELS)
CALIBRATION = Calibration("pseudocal", TemperatureScaling(2.0))


def model(x):
    return 3 * x


TAKES_LOGITS = {
    "softmax": softmax,
    "binary": lambda z: binary_logits(z[:, 0]),
    "temperature": lambda z: fit_temperature(z, LABELS),
    "vector": lambda z: fit_vector(z, LABELS),
    "matrix": lambda z: fit_matrix(z, LABELS),
    "apply": CALIBRATION,
    "outcomes": lambda z: Outcomes.from_logits(z, LABELS),
    "rows to label": lambda z: rows_to_label(z, 5),
    "oracle": lambda z: oracle(z, LABELS),
    "labelled": lambda z: oracle(Labelled(z, LABELS)),
    "model": lambda z: Checked(lambda x: z)(LOGITS),
    "features": lambda z: density_ratio(z, LOGITS + 1),
}
TAKES_LABELS = {
    "temperature": lambda y: fit_temperature(LOGITS, y),
    "vector": lambda y: fit_vector(LOGITS, y),
    "matrix": lambda y: fit_matrix(LOGITS, y),
    "outcomes": lambda y: Outcomes.from_logits(LOGITS, y),
    "probabilities": lambda y: Outcomes.from_probabilities(softmax(LOGITS), y),
    "classwise": lambda y: classwise_ece(softmax(LOGITS), y),
    "oracle": lambda y: oracle(LOGITS, y),
    "label sample": lambda y: LabelSample(np.arange(N), y),
    "rows": lambda y: LabelSample(y, np.zeros(N, dtype=int)),
}
TAKES_WEIGHTS = {
    "temperature": lambda w: fit_temperature(LOGITS, LABELS, weights=w),
    "oracle": lambda w: oracle(LOGITS, LABELS, weights=w),
    "accuracy": lambda w: accuracy(softmax(LOGITS), LABELS, weights=w),
    "classwise": lambda w: classwise_ece(softmax(LOGITS), LABELS, weights=w),
    "oracle by ECE": lambda w: oracle(LOGITS, LABELS, weights=w, by="ece"),
}
TAKES_GROUPS = {
    "temperature": lambda g: fit_temperature(LOGITS, LABELS, groups=g),
    "pairs": lambda g: fit_temperature(LOGITS, LABELS, groups=np.ma.stack([g, g], axis=1)),
    "bootstrap": lambda g: bootstrap(accuracy, OUTCOMES, groups=g, resamples=20),
    "rows to label": lambda g: rows_to_label(LOGITS, 5, groups=g),
    "oracle": lambda g: oracle(LOGITS, LABELS, groups=g),
}
TAKES_MORE = {
    "maps": (MAPS, lambda z: Segmented.of(z, MASKS)),
    "masks": (MASKS, lambda y: Segmented.of(MAPS, y)),
    "soft targets": (softmax(LOGITS), lambda p: fit_temperature(LOGITS, p)),
    "probabilities": (softmax(LOGITS), lambda p: Outcomes.from_probabilities(p, LABELS)),
    "classwise": (softmax(LOGITS), lambda p: classwise_ece(p, LABELS)),
    "one column": (softmax(LOGITS)[:, 0], lambda p: accuracy(p, np.minimum(LABELS, 1))),
    "list of rows": (LOGITS, lambda z: fit_temperature(list(z), LABELS)),
}
TAKES_INPUTS = {
    "stream": lambda x: PseudoCal().fit(model, [x]),
    "array": lambda x: PseudoCal().fit(model, x),
    "blocks": lambda x: PseudoCal().fit(model, x, executor=LocalExecutor()),
}
INPUTS = [(f"inputs: {name}", LOGITS, use) for name, use in TAKES_INPUTS.items()]
EVERY = [
    *((f"logits: {name}", LOGITS, use) for name, use in TAKES_LOGITS.items()),
    *((f"labels: {name}", LABELS, use) for name, use in TAKES_LABELS.items() if name != "rows"),
    ("labels: rows", np.arange(N), TAKES_LABELS["rows"]),
    *((f"weights: {name}", ONES, use) for name, use in TAKES_WEIGHTS.items()),
    *((f"groups: {name}", GROUPS, use) for name, use in TAKES_GROUPS.items()),
    *((name, array, use) for name, (array, use) in TAKES_MORE.items()),
]


@pytest.mark.parametrize(
    ("array", "use"),
    [case[1:] for case in EVERY + INPUTS],
    ids=[case[0] for case in EVERY + INPUTS],
)
def test_masked_values_are_refused(array, use):
    masked = np.ma.array(array, mask=False)
    masked[3] = np.ma.masked
    with pytest.raises(
        InputError, match=r"without masked values, got \d+ masked of \d+: drop the rows"
    ):
        use(masked)


@pytest.mark.parametrize(
    ("array", "use"),
    [case[1:] for case in EVERY + INPUTS],
    ids=[case[0] for case in EVERY + INPUTS],
)
def test_a_masked_array_without_masked_values_is_an_array(array, use):
    try:
        use(np.ma.array(array))
        use(np.ma.array(array, mask=False))
    except MissingExtraError as error:
        pytest.skip(str(error))


def test_masked_rows_that_are_dropped_do_not_change_the_fit():
    """The masked values of the issue: with them T was 0.0001."""
    z = np.ma.array(LOGITS, mask=False)
    z[::4] = np.ma.masked
    rows = ~np.ma.getmaskarray(z).any(axis=1)
    assert fit_temperature(z[rows], LABELS[rows]) == fit_temperature(LOGITS[rows], LABELS[rows])


NOT_NUMBERS = [np.timedelta64(1, "s"), np.datetime64("2026-01-01"), 1 + 0j, "1", None]


@pytest.mark.parametrize("value", NOT_NUMBERS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    ("array", "use"), [case[1:] for case in EVERY], ids=[case[0] for case in EVERY]
)
def test_what_is_not_a_number_is_refused(array, use, value):
    if value == "1" or value is None:
        odd = np.full(array.shape, value)
    elif isinstance(value, complex):
        odd = array.astype(complex)
    else:
        odd = array.astype(np.int64).astype(value.dtype)
    with pytest.raises(InputError):
        use(odd)


@pytest.mark.parametrize("kind", ["timedelta64[s]", "datetime64[s]"])
@pytest.mark.parametrize("use", TAKES_INPUTS.values(), ids=TAKES_INPUTS)
def test_inputs_may_be_of_any_kind_but_dates_and_times(use, kind):
    with pytest.raises(InputError, match=r"expected inputs that are numbers.*64\[s\]"):
        use(LOGITS.astype(np.int64).astype(kind))
