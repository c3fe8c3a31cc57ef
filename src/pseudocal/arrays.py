"""Array types that all layers share, and the checks at the public edge.

All numbers are NumPy arrays. A model's inputs are opaque: they are only indexed by rows and mixed
with `+` and `*`.

The library raises two exceptions of its own. `InputError` means that an argument or a file is
invalid: it says what is wrong, and then what to do. `MissingExtraError`, in `extras`, means that an
optional package is not installed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any, Final, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.floating[Any]]
Logits = Floats  # (n, classes)
Maps = Floats  # (n, classes, height, width): logits of a segmentation model
Probabilities = Floats  # (n, classes), rows sum to one
Labels = NDArray[Any]  # (n,) integers, or (n, classes) soft targets
Inputs = Any  # what the model takes, several at once: indexable by rows, closed under + and *


TEMPERATURES = (1e-10, 1e10)  # those that logits can be divided by in float32 without overflowing
SUM_ERROR = 1e-3  # of probabilities that were rounded
# how far the sums of rows may be from one, by the least number of rows: the more rows, the less they
# look like probabilities by chance, as logits (0, 1) of two classes do. With 20 rows, probabilities
# may have been rounded to two digits
SUM_ERRORS = ((20, 0.05), (4, 0.02), (1, 1e-6))
FEWEST_ROWS = 4  # fewer rows may be written by hand, and must be strictly between 0 and 1
PERCENT: Final = 100
PERCENT_ERROR = 0.01  # of sums of percentages: larger logits are more often near a sum by chance
ONE_LOGIT = (
    "one logit per row is two columns: pseudocal.binary_logits(z), or PseudoCal(binary=True) for a "
    "model"
)


class InputError(ValueError):
    """An argument or a file is invalid.

    >>> print(InputError("two.npz holds the arrays x, y", setting="field", value="NAME"))
    two.npz holds the arrays x, y; set field=NAME
    >>> print(InputError("expected at least 2 inputs per batch, got 1", setting="batch_size"))
    expected at least 2 inputs per batch, got 1 (batch_size)

    Args:
        message: What is wrong.
        setting: The parameter to change; None if there is none.
        value: What to set it to, as it is written in Python: `(224, 224)`, `"logits"`, `True`, or a
            placeholder such as `NAME`.

    """

    def __init__(self, message: str, *, setting: str | None = None, value: str | None = None):
        super().__init__(message)
        self.message = message
        self.setting = setting
        self.value = value

    def __str__(self) -> str:
        if self.setting is None:
            return self.message
        if self.value is None:
            return f"{self.message} ({self.setting})"
        return f"{self.message}; set {self.setting}={self.value}"

    def reworded(self, message: str) -> InputError:
        """The same error with another message.

        Args:
            message: What is wrong.

        """
        return type(self)(message, setting=self.setting, value=self.value)


class Predictor(Protocol):
    """A model as the library sees it.

    A batch of inputs in, logits `(n, classes)` or maps of logits out.
    """

    def __call__(self, x: Inputs, /) -> Logits:
        """Predict one batch."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Labelled:
    """Logits with their labels, and optionally a weight and a group for each row.

    Rows of the same group, such as pixels of one image, are not independent. A row may belong to
    two groups: a mixup sample of two images does.

    >>> len(Labelled(np.array([[2.0, 0.0], [0.0, 1.0]]), np.array([0, 1])))
    2

    Attributes:
        logits: Of shape `(n, classes)`.
        labels: The class of each row, of shape `(n,)`.
        weights: The weight of each row, of shape `(n,)`; None means 1 for each.
        groups: The group of each row, of shape `(n,)`, or its two groups, of shape `(n, 2)`; None
            means that all rows are independent.

    """

    logits: Logits
    labels: Labels
    weights: Floats | None = None
    groups: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        unmasked(self.logits, "logits")
        unmasked(self.labels, "labels")
        unmasked(self.weights, "weights")
        unmasked(self.groups, "groups")

    def __len__(self) -> int:
        return len(self.logits)


def softmax(logits: ArrayLike) -> Probabilities:
    """Turn each row of logits into probabilities.

    A class whose logit is -inf is impossible and gets probability zero.

    >>> softmax([[0.0, 0.0], [0.0, -np.inf]])
    array([[0.5, 0.5],
           [1. , 0. ]])

    Args:
        logits: Logits of shape `(n, classes)`.

    """
    logits = as_logits(logits)
    shifted: Floats = np.subtract(
        logits, logits.max(axis=1, keepdims=True), dtype=work_dtype(logits)
    )
    np.exp(shifted, out=shifted)
    shifted /= shifted.sum(axis=1, keepdims=True)
    return shifted


def binary_logits(logit: ArrayLike) -> Logits:
    """Turn the single logit z of a binary model into the two logits (0, z).

    sigmoid(z) is the second column of softmax((0, z)).

    >>> binary_logits([3.0, -1.0])
    array([[ 0.,  3.],
           [ 0., -1.]])

    Args:
        logit: One logit per row, of shape `(n,)` or `(n, 1)`.

    """
    z = as_numpy(logit, "logits")
    if not is_real(z):
        raise InputError(f"expected logits that are real numbers, got dtype {z.dtype}")
    if z.ndim == 2 and z.shape[1] == 1:
        z = z[:, 0]
    if z.ndim != 1:
        raise InputError(
            f"expected one logit per row, got shape {z.shape}: several independent sigmoids "
            "(multi-label) are not one distribution over classes; calibrate each as a separate "
            "binary model"
        )
    return np.stack([np.zeros_like(z), z], axis=1)


def work_dtype(logits: Floats) -> type[np.float32] | type[np.float64]:
    """The precision to compute in: float16 and float32 in float32, anything wider in float64."""
    return np.float32 if logits.dtype.itemsize <= 4 else np.float64


def as_logits(logits: ArrayLike) -> Logits:
    """Convert to a floating-point array `(n, classes)`, without a copy if it is one already."""
    array = as_numpy(logits, "logits")
    if array.ndim != 2:
        hint = f"; {ONE_LOGIT}" if array.ndim == 1 else ""
        raise InputError(f"expected logits of shape (n, classes), got shape {array.shape}{hint}")
    if array.shape[0] == 0:
        raise InputError(f"expected at least one row of logits, got shape {array.shape}")
    if array.shape[1] < 2:
        raise InputError(
            f"expected logits for at least two classes, got shape {array.shape}; {ONE_LOGIT}"
        )
    if not is_real(array):
        raise InputError(f"expected logits that are real numbers, got dtype {array.dtype}")
    return array.astype(np.float64) if is_integer(array) else array


def as_maps(maps: ArrayLike) -> Maps:
    """Convert to floating-point logits `(n, classes, height, width)`.

    A single image becomes a batch of one.

    >>> as_maps(np.zeros((19, 4, 8))).shape
    (1, 19, 4, 8)
    """
    array = as_numpy(maps, "logits")
    array = array[None] if array.ndim == 3 else array
    if array.ndim != 4 or 0 in array.shape or array.shape[1] < 2:
        raise InputError(
            f"expected maps of logits of shape (n, classes, height, width), got shape {array.shape}"
        )
    if not np.issubdtype(array.dtype, np.floating):
        raise InputError(f"expected logits that are real numbers, got dtype {array.dtype}")
    return array


def as_labels(labels: ArrayLike, logits: Logits) -> Labels:
    """Convert to class indices `(n,)` that match `logits`; True is the second of two classes."""
    array = as_numpy(labels, "labels")
    if array.dtype == bool:
        array = array.astype(np.int64)
    n, classes = logits.shape
    if array.shape != (n,):
        raise InputError(
            f"expected labels of shape ({n},), one for each row, got shape {array.shape}"
        )
    if not is_integer(array):
        raise InputError(
            f"expected labels that are integers, got dtype {array.dtype}{class_positions(array)}"
        )
    low = array.min()
    high = array.max()
    if low < 0 or high >= classes:
        row = int(np.argmax((array < 0) | (array >= classes)))
        raise InputError(f"expected labels from 0 to {classes - 1}, got {array[row]} in row {row}")
    if array.dtype == np.uint64:  # adding uint64 to int64 would give floats
        return array.astype(np.int64)
    return array


def as_weights(weights: ArrayLike, n: int) -> NDArray[np.float64]:
    """Convert to non-negative weights `(n,)` that are not all zero."""
    given = as_numpy(weights, "weights")
    if not is_real(given) and given.dtype != bool:
        raise InputError(f"expected weights that are real numbers, got dtype {given.dtype}")
    array = given.astype(np.float64, copy=False)
    if array.shape != (n,):
        raise InputError(
            f"expected weights of shape ({n},), one for each row, got shape {array.shape}"
        )
    bad = ~(np.isfinite(array) & (array >= 0))
    if bad.any() or not array.any():
        got = f"{array[bad][0]} in row {int(np.argmax(bad))}" if bad.any() else f"{n} zeros"
        raise InputError(
            f"expected weights that are finite, non-negative and not all zero, got {got}"
        )
    return array


def check_rows(logits: Logits, rows: NDArray[np.intp] | None = None) -> None:
    """Reject NaN, +inf and rows that are all -inf.

    The error names the row (by its number in `rows` if given).
    """
    top = logits.max(axis=1)
    if not np.isfinite(top).all():
        i = int(np.argmin(np.isfinite(top)))
        what = "NaN"
        if np.isinf(top[i]):
            what = "+inf" if top[i] > 0 else "-inf for every class"
        row = i if rows is None else int(rows[i])
        raise InputError(
            f"expected logits below +inf, one of them finite in each row, got {what} in row {row}"
        )


def check_temperature(temperature: Any) -> float:
    """Refuse what logits cannot be divided by, or could not without overflowing.

    >>> check_temperature(1e-320)
    Traceback (most recent call last):
    pseudocal.arrays.InputError: expected a positive temperature from 1e-10 to 1e+10, got 1e-320
    """
    low, high = TEMPERATURES
    number = isinstance(temperature, Real) and not isinstance(temperature, bool | np.bool_)
    if not number or not low <= temperature <= high:
        got = repr(temperature) if isinstance(temperature, bool | str) else str(temperature)[:80]
        raise InputError(f"expected a positive temperature from {low:g} to {high:g}, got {got}")
    return float(temperature)


def check_pixels_per_image(count: int | None) -> None:
    """Reject a number of pixels that is not None and not a positive integer."""
    whole = isinstance(count, int | np.integer) and not isinstance(count, bool)
    if count is not None and (not whole or count < 1):
        raise InputError(
            "expected at least one pixel of each image, a whole number, or None for all, got "
            f"{count!r}"
        )


def check_choice(name: str, value: str, *choices: str) -> None:
    """Reject a setting that is not one of the choices."""
    if value not in choices:
        raise InputError(f"expected {name} {' or '.join(map(repr, choices))}, got {value!r}")


def as_numpy(array: Any, name: str = "values") -> NDArray[Any]:
    """Convert an array or a tensor to NumPy.

    A tensor may be on any device and may require a gradient. Masked values are refused; the error
    calls the array by its `name`.
    """
    if hasattr(array, "detach"):  # a torch tensor
        array = array.detach().cpu()
        if str(array.dtype) == "torch.bfloat16":  # which NumPy lacks; float32 holds it exactly
            array = array.float()
    return np.asanyarray(unmasked(array, name))


def unmasked(array: Any, name: str) -> Any:
    """Reject masked values; return a masked array without any as a plain array.

    >>> unmasked(np.ma.array([1, 2], mask=[False, True]), "labels")
    Traceback (most recent call last):
    pseudocal.arrays.InputError: expected labels without masked values, got 1
    masked of 2: drop the rows that have masked values first, in all arrays alike
    """
    if isinstance(array, list | tuple) and any(
        isinstance(part, np.ma.MaskedArray) for part in array
    ):
        array = np.ma.asarray(array)  # np.asarray would drop the masks of the parts
    if not isinstance(array, np.ma.MaskedArray):
        return array
    masked = int(np.ma.getmaskarray(array).sum())
    if masked:
        raise InputError(
            f"expected {name} without masked values, got {masked} masked of {array.size}: drop the "
            "rows that have masked values first, in all arrays alike"
        )
    return array.data


def is_integer(array: NDArray[Any]) -> bool:
    """Whether an array holds integers; NumPy counts time differences among them.

    >>> is_integer(np.array([1])), is_integer(np.array([1], "timedelta64[s]"))
    (True, False)
    """
    return array.dtype.kind in "iu"


def class_positions(labels: NDArray[Any]) -> str:
    """What to do with labels that are names, for the end of an error message.

    >>> class_positions(np.array(["cat", "dog"]))
    ': pass their positions in the classes of the model, np.searchsorted(model.classes_, labels)'
    >>> class_positions(np.array([0.5]))
    ''
    """
    if labels.dtype.kind not in "OSUT":
        return ""
    return (
        ": pass their positions in the classes of the model, "
        "np.searchsorted(model.classes_, labels)"
    )


def is_real(array: NDArray[Any]) -> bool:
    """Whether an array holds integers or floating-point numbers."""
    return array.dtype.kind in "iuf"


def check_no_objects(arrays: Mapping[str, NDArray[Any]]) -> None:
    """Refuse arrays of objects, which NumPy would pickle to write them."""
    for name, array in arrays.items():
        if array.dtype.hasobject:
            raise InputError(f"expected arrays without objects, got {name} of dtype {array.dtype}")


def looks_like_probabilities(logits: Logits) -> bool:
    """Whether every row is non-negative and sums to one: logits never do so by chance."""
    if not ((logits >= 0) & (logits <= 1 + SUM_ERROR)).all():  # whose sum could overflow
        return False
    return bool(np.allclose(logits.sum(axis=1), 1, atol=SUM_ERROR))


def probability_scale(rows: NDArray[Any]) -> Literal[1, 100] | None:
    """1 if rows look like probabilities, 100 if they look like percentages, None if like logits.

    >>> probability_scale(np.array([[0.2, 0.8]])), probability_scale(np.array([[0.0, 1.0]]))
    (1, None)
    >>> probability_scale(np.tile([33.3, 66.6], (4, 1)))
    100
    """
    if rows.ndim != 2 or rows.shape[1] < 2 or len(rows) == 0 or not is_real(rows):
        return None
    if _add_up(rows, 1):
        return 1
    inside = bool(((rows > 0) & (rows < PERCENT)).any())  # hand-made logits may be 0 and 100
    return PERCENT if inside and len(rows) >= FEWEST_ROWS and _add_up(rows, PERCENT) else None


def _add_up(rows: NDArray[Any], scale: int) -> bool:
    """Whether rows lie between 0 and a number and add up to it, as far as their number demands."""
    error = next(error for fewest, error in SUM_ERRORS if len(rows) >= fewest)
    if scale == PERCENT:
        error = min(error, PERCENT_ERROR)
    if not ((rows >= 0) & (rows <= scale * (1 + SUM_ERROR))).all():  # whose sum could overflow
        return False
    if len(rows) < FEWEST_ROWS and not ((rows > 0) & (rows < scale)).all():
        return False
    return bool((np.abs(rows.sum(axis=1, dtype=np.float64) / scale - 1) <= error).all())


def check_not_probabilities(logits: NDArray[Any]) -> None:
    """Refuse probabilities where logits `(n, classes)` or maps of logits are expected.

    Only the first rows are read. Fewer than `FEWEST_ROWS` must have sums of exactly one and no
    zeros, since a few rows of logits may sum to one by chance.

    >>> check_not_probabilities(np.array([[0.2, 0.8]]))
    Traceback (most recent call last):
    pseudocal.arrays.InputError: expected logits, got rows that look like probabilities (no entry
    below 0, sums of 1): pass their logarithm instead, np.log(probabilities)
    """
    few = logits[:100]
    if logits.ndim == 4 and len(logits):
        few = logits[0].reshape(len(logits[0]), -1)[:, :100].T
    scale = probability_scale(few)
    if scale is None:
        return
    sums = few.sum(axis=1, dtype=np.float64)
    low, high = f"{sums.min():.4g}", f"{sums.max():.4g}"
    seen = f"sums of {low}" if low == high else f"sums from {low} to {high}"
    what, fix = ("probabilities", "np.log(probabilities)")
    if scale == PERCENT:
        what, fix = ("percentages", "np.log(percentages / 100)")
    raise InputError(
        f"expected logits, got rows that look like {what} (no entry below 0, {seen}): pass their "
        f"logarithm instead, {fix}"
    )


def cores() -> int:
    """The number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
