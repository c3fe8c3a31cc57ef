"""The result of a calibrator.

A scaling, its uncertainty, and the settings and versions that produced it.
"""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from pseudocal.arrays import (
    Floats,
    InputError,
    Logits,
    Probabilities,
    as_logits,
    as_numpy,
    check_not_probabilities,
    check_temperature,
    softmax,
)
from pseudocal.calibrators.labels import LabelSample
from pseudocal.calibrators.measured import Measured
from pseudocal.calibrators.refinement import as_applied, priors_of, refine
from pseudocal.calibrators.trust import Trust, warn_if_unreliable
from pseudocal.files import brief, load_json, replacing
from pseudocal.maps import by_rows
from pseudocal.notebook import calibration_html
from pseudocal.scaling import MatrixScaling, Scaling, TemperatureScaling, VectorScaling

FORMAT = "pseudocal-calibration"
FORMAT_VERSION = 1
LARGEST_NUMBER = 1e300  # of those that a file may hold
KINDS: dict[str, Any] = {
    "matrix": MatrixScaling,
    "temperature": TemperatureScaling,
    "vector": VectorScaling,
}


def versions() -> dict[str, str]:
    """The versions that a result depends on."""
    try:
        pseudocal = version("pseudocal")
    except PackageNotFoundError:  # run from a source tree that was not installed
        pseudocal = "unknown"
    found = {"pseudocal": pseudocal, "python": platform.python_version()}
    return found | {"numpy": np.__version__, "scipy": scipy.__version__}


def scaled(scaling: Callable[[Logits], Logits], logits: ArrayLike) -> Logits:
    """The scaled logits of rows or maps, even if these look like probabilities."""
    array = as_numpy(logits, "logits")
    if array.ndim == 3:
        raise InputError(
            "expected logits of shape (n, classes), or of every pixel (n, classes, height, width), "
            f"got shape {array.shape}; for one image pass logits[None]"
        )
    return by_rows(scaling, array) if array.ndim == 4 else scaling(array)


def scaled_probabilities(scaling: Scaling, logits: ArrayLike) -> Probabilities:
    """The probabilities of the scaled logits, even if the logits look like probabilities."""
    return scaled(lambda rows: softmax(scaling(rows)), logits)


def check_same_classes(calibration: Calibration, classes: int) -> None:
    """Refuse logits with another number of classes than those the calibration was fitted on."""
    if calibration.classes not in (None, classes):
        raise InputError(
            f"expected logits of {calibration.classes} classes, as the calibration was fitted on, "
            f"got {classes}: it may belong to another model"
        )


def _estimates(content: Any) -> dict[str, float]:
    return {
        name: check_temperature(value)
        for name, value in _named(content, "temperatures by estimator").items()
    }


def _named(content: Any, what: str, *kinds: type) -> dict[str, Any]:
    """An object of a file, whose values are of certain types, if any are named."""
    if isinstance(content, dict) and all(
        not kinds or type(value) in kinds for value in content.values()
    ):
        return dict(content)
    raise InputError(f"expected {what}, got {brief(content)}")


def _number(value: Any, name: str) -> float:
    if type(value) in (int, float) and abs(value) < LARGEST_NUMBER:
        return float(value)
    raise InputError(f"expected a finite number as {name}, got {brief(value)}")


def _array(value: Any, name: str) -> Floats:
    try:
        array = np.asarray(value)
    except ValueError as error:  # lists of different lengths, or too deep
        raise InputError(f"expected numbers as {name}, got {brief(value)}") from error
    if array.dtype.kind not in "iuf" or not np.isfinite(array).all():
        raise InputError(f"expected finite numbers as {name}, got {brief(value)}")
    return array.astype(np.float64)


@dataclass(frozen=True)
class Calibration:
    """A fitted correction of a model's logits, with everything needed to judge and to reproduce it.

    >>> calibration = Calibration("pseudocal", TemperatureScaling(2.0, log_se=0.05, rows=400))
    >>> calibration
    Calibration(pseudocal: T = 2.000 in [1.821, 2.217], from 400 rows)
    >>> calibration.probabilities([[2 * np.log(3), 0.0]]).round(4)
    array([[0.75, 0.25]])

    The brackets are `interval`: 95% without labels, and 90% with labels.

    Attributes:
        method: The name of the calibrator.
        scaling: The scaling that corrects the logits.
        settings: The settings of the run, including the seed.
        counts: What was done: the numbers of pairs, mixup samples and forward passes.
        versions: The versions of pseudocal, Python, NumPy and SciPy.
        trust: The label-free verdict on the calibration, if there is one.
        estimates: The temperatures found without labels, by estimator.
        measured: What a person's labels say about the calibration; it takes precedence over
            `trust`.
        refused: The temperature that should not be applied, for the record, if `scaling` is T = 1
            instead.
        classes: The number of classes it was fitted on, or None if it is unknown.

    """

    method: str
    scaling: Scaling
    settings: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=versions)
    trust: Trust | None = None
    estimates: dict[str, float] = field(default_factory=dict)
    measured: Measured | None = None
    refused: float | None = None
    classes: int | None = None

    def __call__(self, logits: ArrayLike) -> Logits:
        """Correct logits `(n, classes)` or `(n, classes, height, width)`."""
        return scaled(self.scaling, self._checked(logits))

    def probabilities(self, logits: ArrayLike) -> Probabilities:
        """Calibrated probabilities.

        Args:
            logits: Logits of shape `(n, classes)` or `(n, classes, height, width)`. Rows that look
                like probabilities are refused: pass their logarithm.

        """
        return scaled_probabilities(self.scaling, self._checked(logits))

    def _checked(self, logits: ArrayLike) -> Logits:
        """The logits as an array, which may be those of the calibration's model."""
        array = as_numpy(logits, "logits")
        check_not_probabilities(array)
        if array.ndim in (2, 4) and array.shape[1] > 1:  # other shapes are refused later
            check_same_classes(self, array.shape[1])
        return array

    def refined(
        self,
        logits: ArrayLike,
        labels: LabelSample,
        *,
        widths: Mapping[str, float] | None = None,
        groups: ArrayLike | None = None,
    ) -> Calibration:
        """Update the calibration with a person's labels.

        `refine`, with the label-free estimates as priors. If the labels say that T should not be
        applied, there is an `UnreliableCalibrationWarning`, or T = 1 with
        `PseudoCal(on_unreliable="identity")`.

        The verdict and the intervals describe the rows of `logits`, of which the labels are a
        sample. If all rows are labelled, the interval of the accuracy has no width.

        Args:
            logits: The logits of the whole target, of shape `(rows, classes)`, as passed to
                `rows_to_label`: labelled or not, and those of the model itself, not calibrated.
                Rows that look like probabilities are refused.
            labels: A person's labels, all of them: earlier labels are not kept.
            widths: The width of the prior around each estimate, in log T, by estimator, where it
                differs from the default; `math.inf` drops the estimate.
            groups: The groups that were passed to `rows_to_label`, such as the image of each pixel.

        """
        z = as_logits(logits)
        check_not_probabilities(z)
        if groups is None:
            self._check_whole_target(len(z), len(labels))
        refined = refine_any_logits(self, z, labels, widths=widths, groups=groups)
        if self.settings.get("on_unreliable") != "identity":
            warn_if_unreliable(refined.measured)
        return refined

    def _check_whole_target(self, rows: int, labels: int) -> None:
        """Refuse logits of the labelled rows only, which would have intervals without a width."""
        epochs = self.settings.get("epochs")
        # each input begins one pair per epoch, if it is mixed at all
        pairs = self.counts.get("pairs", 0) // epochs if type(epochs) is int and epochs else 0
        if self.method == "none":  # nothing was mixed
            pairs = self.counts.get("forward_passes", 0)
        if labels == rows < pairs:
            raise InputError(
                f"expected the logits of the whole target, labelled or not, got {rows} rows, all of "
                f"them labelled, and the calibration was fitted on {pairs:,}: pass the logits that "
                "were passed to rows_to_label"
            )

    def without_refused(self) -> Calibration:
        """The same with T = 1 if the temperature should not be applied; `refused` keeps it."""
        if self.verdict != "do not apply" or self.settings.get("on_unreliable") != "identity":
            return self
        fitted = self._temperature_scaling
        return replace(
            self, scaling=TemperatureScaling(1.0, rows=fitted.rows), refused=fitted.temperature
        )

    @property
    def verdict(self) -> str | None:
        """The verdict of the labels if there are any, otherwise the label-free one.

        None if there is neither.
        """
        judged = self.measured or self.trust
        return None if judged is None else judged.verdict

    @property
    def temperature(self) -> float:
        """The temperature, if the scaling is a temperature."""
        return self._temperature_scaling.temperature

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of the temperature, sampling error only.

        With labels, the 90% interval they give.
        """
        known = self.measured.temperature if self.measured and self.refused is None else None
        return (known.low, known.high) if known else self._temperature_scaling.interval()

    @property
    def bound(self) -> str | None:
        """The bound of the search range at which the temperature lies, or None."""
        return self._temperature_scaling.bound

    @property
    def _temperature_scaling(self) -> TemperatureScaling:
        if not isinstance(self.scaling, TemperatureScaling):
            raise AttributeError(f"expected a temperature, got a {type(self.scaling).__name__}")
        return self.scaling

    def __repr__(self) -> str:
        if not isinstance(self.scaling, TemperatureScaling):
            scaling = f"{type(self.scaling).__name__} of {len(self.scaling.bias)} classes"
            return f"Calibration({self.method}: {scaling})"
        low, high = self.interval
        digits = ".3f" if self.temperature >= 0.01 else ".1e"
        # some methods have no error
        known = "" if math.isnan(low) else f" in [{low:{digits}}, {high:{digits}}]"
        hit = ""
        if self.bound:
            hit = f", at the {self.bound} bound"
        elif self.refused:
            hit = f", {self.refused:.3f} rejected"
        said = f", verdict: {self.verdict}" if self.verdict else ""
        rows = f"from {self.scaling.rows} rows"
        # without labels nothing was fitted, with labels T is theirs
        method = "labels" if self.measured and self.method == "none" else self.method
        return f"Calibration({method}: T = {self.temperature:{digits}}{known}, {rows}{hit}{said})"

    _repr_html_ = calibration_html

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the calibration as JSON; the file is complete or absent.

        Args:
            path: The file to write.

        """
        content = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "method": self.method,
            "scaling": scaling_to_dict(self.scaling),
            "settings": self.settings,
            "counts": self.counts,
            "versions": self.versions,
            "trust": None if self.trust is None else self.trust.to_dict(),
            "estimates": self.estimates,
            "measured": None if self.measured is None else self.measured.to_dict(),
            "refused": self.refused,
            "classes": self.classes,
        }
        path = Path(path)
        if not path.parent.is_dir():
            raise InputError(f"expected an existing folder for {path.name}, got {path.parent}")
        with replacing(path) as aside:
            aside.write_text(
                json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8"
            )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Calibration:
        """Read what `save` wrote."""
        content = load_json(Path(path), "a calibration file")
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise InputError(f"expected a file of format {FORMAT}, got {path}, which is another")
        given = content.get("format_version")
        if type(given) is not int or given != FORMAT_VERSION:
            raise InputError(
                f"expected format version {FORMAT_VERSION}, got {brief(given)} in {path}"
            )
        try:
            return cls._from_dict(content)
        except InputError as error:
            raise InputError(f"{error} in {path}") from error

    @classmethod
    def _from_dict(cls, content: dict[str, Any]) -> Calibration:
        scaling = scaling_from_dict(content.get("scaling"))
        method = content.get("method")
        if not isinstance(method, str):
            raise InputError(f"expected the name of a method, got {brief(method)}")
        trust, measured, refused = (content.get(key) for key in ("trust", "measured", "refused"))
        classes = content.get("classes")
        if classes is not None and (type(classes) is not int or not 2 <= classes < 2**63):
            raise InputError(f"expected a number of classes, got {brief(classes)}")
        return cls(
            method=method,
            scaling=scaling,
            settings=_named(content.get("settings", {}), "settings by name"),
            counts=_named(content.get("counts", {}), "counts by name", int),
            versions=_named(content.get("versions", {}), "versions by package", str),
            trust=None if trust is None else Trust.from_dict(trust),
            estimates=_estimates(content.get("estimates", {})),
            measured=None if measured is None else Measured.from_dict(measured),
            refused=None if refused is None else check_temperature(refused),
            classes=classes,
        )


def scaling_to_dict(scaling: Scaling) -> dict[str, Any]:
    """Convert a scaling to JSON values.

    Infinity becomes None; an unknown standard error, NaN, is left out.

    >>> scaling_to_dict(TemperatureScaling(2.0, log_se=0.1, rows=100))
    {'kind': 'temperature', 'temperature': 2.0, 'log_se': 0.1, 'rows': 100, 'bound': None,
    'groups': None, 'skew': 0.0, 'effective_rows': None}
    """
    kind = next(name for name, type_ in KINDS.items() if isinstance(scaling, type_))
    unknown = {"log_se"} if math.isnan(getattr(scaling, "log_se", 0)) else set[str]()
    return {"kind": kind} | {
        f.name: _plain(getattr(scaling, f.name)) for f in fields(scaling) if f.name not in unknown
    }


def scaling_from_dict(value: Any) -> Scaling:
    """Read what `scaling_to_dict` wrote.

    >>> scaling_from_dict({"kind": "temperature", "temperature": 2.0})([[2.0, 4.0]])
    array([[1., 2.]])
    """
    kind = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in KINDS:
        raise InputError(f"expected a scaling of kind {', '.join(KINDS)}, got {brief(kind)}")
    given = {k: v for k, v in value.items() if k != "kind"}
    known = {f.name: f.default is MISSING for f in fields(KINDS[kind])}
    if given.keys() - known or {name for name, needed in known.items() if needed} - given.keys():
        raise InputError(
            f"expected the fields {', '.join(known)} of a {kind} scaling, got "
            f"{brief(sorted(given))}"
        )
    if kind != "temperature":
        return KINDS[kind](**{k: _array(v, k) for k, v in given.items()})  # type: ignore[no-any-return]
    null = {"log_se": math.inf, "effective_rows": math.inf, "groups": None}  # what it stands for
    rows = given.get("rows", 0)
    if type(rows) is not int or not 0 <= rows < 2**63:
        raise InputError(f"expected a number of rows, got {brief(rows)}")
    filled: dict[str, Any] = {
        k: null.get(k) if v is None else _number(v, k)
        for k, v in given.items()
        if k not in ("rows", "bound")
    }
    return TemperatureScaling(**filled, rows=rows, bound=given.get("bound"))


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def refine_any_logits(
    calibration: Calibration,
    logits: ArrayLike,
    labels: LabelSample,
    *,
    widths: Mapping[str, float] | None = None,
    groups: ArrayLike | None = None,
) -> Calibration:
    """`Calibration.refined`, even if the logits look like probabilities."""
    z = as_logits(logits)
    check_same_classes(calibration, z.shape[1])
    estimates = calibration.estimates
    # T is an estimate, unless it was set
    was_set = (
        calibration.bound
        or calibration.measured
        or calibration.refused
        or calibration.method == "none"
    )
    if not estimates and not was_set:
        estimates = {calibration.method: calibration.temperature}
    accuracy = None if calibration.trust is None else calibration.trust.estimated_accuracy
    priors = priors_of(estimates, z, widths, accuracy=accuracy)
    scaling, measured = as_applied(*refine(z, labels, priors=priors, groups=groups))
    found = replace(
        calibration,
        scaling=scaling,
        measured=measured,
        estimates=estimates,
        refused=None,
        classes=z.shape[1],
        versions=versions(),
    )
    return found.without_refused()
