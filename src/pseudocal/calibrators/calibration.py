"""What every calibrator gives back: a scaling, how well it is known, and where it came from."""

from __future__ import annotations

import json
import math
import os
import platform
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from pseudocal.arrays import InputError, Logits, Probabilities, as_logits, as_numpy, check_temperature, softmax
from pseudocal.calibrators.answers import Answers
from pseudocal.calibrators.measurement import Measured
from pseudocal.calibrators.refinement import priors_of, refine
from pseudocal.calibrators.trust import DistrustWarning, Trust
from pseudocal.maps import by_rows
from pseudocal.scaling import Scaling
from pseudocal.scaling.linear import MatrixScaling, VectorScaling
from pseudocal.scaling.temperature import TemperatureScaling

FORMAT = "pseudocal-calibration"
FORMAT_VERSION = 1
KINDS: dict[str, type[TemperatureScaling] | type[VectorScaling] | type[MatrixScaling]] = {
    "matrix": MatrixScaling,
    "temperature": TemperatureScaling,
    "vector": VectorScaling,
}


def versions() -> dict[str, str]:
    """The versions that a result depends on."""
    try:
        own = version("pseudocal")
    except PackageNotFoundError:  # run from a source tree that was not installed
        own = "unknown"
    return {"pseudocal": own, "python": platform.python_version(), "numpy": np.__version__, "scipy": scipy.__version__}


def _applied(function: Callable[[Logits], Logits], logits: ArrayLike) -> Logits:
    array = as_numpy(logits)
    if array.ndim == 3:
        raise InputError(
            "expected logits of shape (n, classes), or of every pixel (n, classes, height, width), "
            f"got shape {array.shape}; those of one image are logits[None]"
        )
    return by_rows(function, array) if array.ndim == 4 else function(array)


def _estimates(content: Any) -> dict[str, float]:
    try:
        return {str(name): check_temperature(float(value)) for name, value in content.items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise InputError(f"expected temperatures by estimator, got {content!r}") from error


@dataclass(frozen=True)
class Calibration:
    """A fitted correction of a model's logits, with all that it takes to judge and to repeat it.

    >>> calibration = Calibration("pseudocal", TemperatureScaling(2.0, log_se=0.05, rows=400))
    >>> calibration
    Calibration(pseudocal: T = 2.000 in [1.821, 2.217], from 400 rows)
    >>> calibration.probabilities([[2 * np.log(3), 0.0]]).round(4)
    array([[0.75, 0.25]])

    Attributes:
        method: the name of the calibrator.
        scaling: the fitted correction of logits.
        settings: what was asked for, including the seed.
        counts: what was done: pairs, mixes, forward passes.
        versions: the versions of the packages that the result depends on.
        trust: the verdict without labels; None if nothing was judged.
        estimates: temperatures that were found without labels, by estimator.
        measured: what a person's answers say; it replaces `trust`. None without answers.

    """

    method: str
    scaling: Scaling
    settings: dict[str, Any] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=versions)
    trust: Trust | None = None
    estimates: dict[str, float] = field(default_factory=dict)
    measured: Measured | None = None

    def __call__(self, logits: ArrayLike) -> Logits:
        """Correct logits `(n, classes)` or `(n, classes, height, width)`."""
        return _applied(self.scaling, logits)

    def probabilities(self, logits: ArrayLike) -> Probabilities:
        """Calibrated probabilities for logits `(n, classes)` or `(n, classes, height, width)`."""
        return _applied(lambda rows: softmax(self.scaling(rows)), logits)

    def refined(
        self,
        logits: ArrayLike,
        answers: Answers,
        *,
        widths: Mapping[str, float] | None = None,
        groups: ArrayLike | None = None,
    ) -> Calibration:
        """Bring the calibration up to date with a person's answers: `refine`, with its estimates as the priors.

        Args:
            logits: What the model says of the target, `(rows, classes)`: all of it, as `ask` had it.
            answers: What a person says of the rows that `ask` drew. All of them: earlier answers are not remembered.
            widths: How wide the prior around each estimate is, by estimator, in log T, where it is not to be the usual
                one; `math.inf` leaves the estimate out.
            groups: What `ask` was given, such as the image of each pixel.

        """
        z = as_logits(logits)
        own = {} if self.bound else {self.method: self.temperature}
        estimates = self.estimates or own
        priors = priors_of(estimates, z.shape[1], widths)
        scaling, measured = refine(z, answers, priors=priors, groups=groups)
        return replace(self, scaling=scaling, measured=measured, estimates=estimates, versions=versions())

    @property
    def verdict(self) -> str | None:
        """By the answers if there are any, else the one without labels, None where nothing was judged."""
        judged = self.measured or self.trust
        return None if judged is None else judged.verdict

    @property
    def temperature(self) -> float:
        """The temperature, if that is what was fitted."""
        return self._temperature_scaling.temperature

    @property
    def interval(self) -> tuple[float, float]:
        """The 95% interval of the temperature: sampling error alone, not the error of the method."""
        return self._temperature_scaling.interval()

    @property
    def bound(self) -> str | None:
        """Which end of the searched range the temperature lies at, if it does."""
        return self._temperature_scaling.bound

    @property
    def _temperature_scaling(self) -> TemperatureScaling:
        if not isinstance(self.scaling, TemperatureScaling):
            raise AttributeError(f"expected a temperature, got a {type(self.scaling).__name__}")
        return self.scaling

    def __repr__(self) -> str:
        if not isinstance(self.scaling, TemperatureScaling):
            return f"Calibration({self.method}: {type(self.scaling).__name__} of {len(self.scaling.bias)} classes)"
        low, high = self.interval
        digits = ".3f" if self.temperature >= 0.01 else ".1e"
        known = "" if math.isnan(low) else f" in [{low:{digits}}, {high:{digits}}]"  # not every method has an error
        hit = f", at the {self.bound} bound" if self.bound else ""
        return f"Calibration({self.method}: T = {self.temperature:{digits}}{known}, from {self.scaling.rows} rows{hit})"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write JSON, aside and then renamed: a file that is there is whole."""
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
        }
        path = Path(path)
        if not path.parent.is_dir():
            raise InputError(f"expected a folder to write {path.name} into, got {path.parent}, which is none")
        text = json.dumps(content, indent=2, allow_nan=False) + "\n"
        with NamedTemporaryFile("w", dir=path.parent, prefix=f".{path.name}.", delete=False, encoding="utf-8") as aside:
            aside.write(text)
        os.chmod(aside.name, 0o644)
        os.replace(aside.name, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Calibration:
        """Read what `save` wrote."""
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"expected a calibration file, got {path}, which is not JSON: {error}") from error
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise InputError(f"expected a file of format {FORMAT}, got {path}, which is another")
        if content.get("format_version") != FORMAT_VERSION:
            raise InputError(f"expected format version {FORMAT_VERSION}, got {content.get('format_version')} in {path}")
        return cls(
            method=str(content.get("method")),
            scaling=scaling_from_dict(content.get("scaling")),
            settings=dict(content.get("settings", {})),
            counts=dict(content.get("counts", {})),
            versions=dict(content.get("versions", {})),
            trust=None if content.get("trust") is None else Trust.from_dict(content["trust"]),
            estimates=_estimates(content.get("estimates", {})),
            measured=None if content.get("measured") is None else Measured.from_dict(content["measured"]),
        )


def warn_of_distrust(calibration: Calibration) -> None:
    """Warn of a temperature that should not be applied, unless it was replaced."""
    trust = calibration.trust
    if trust is not None and trust.verdict == "do not apply" and calibration.settings.get("on_distrust") == "warn":
        warnings.warn(f"this calibration should not be applied: {trust.reasons[0]}", DistrustWarning, stacklevel=3)


def scaling_to_dict(scaling: Scaling) -> dict[str, Any]:
    """Write a scaling as JSON values; what is not finite, which JSON cannot say, becomes None.

    >>> scaling_to_dict(TemperatureScaling(2.0, log_se=0.1, rows=100))
    {'kind': 'temperature', 'temperature': 2.0, 'log_se': 0.1, 'rows': 100, 'bound': None,
    'groups': None, 'skew': 0.0, 'effective_rows': None}
    """
    kind = next(name for name, type_ in KINDS.items() if isinstance(scaling, type_))
    return {"kind": kind} | {f.name: _plain(getattr(scaling, f.name)) for f in fields(scaling)}


def scaling_from_dict(value: Any) -> Scaling:
    """Read what `scaling_to_dict` wrote.

    >>> scaling_from_dict({"kind": "temperature", "temperature": 2.0})([[2.0, 4.0]])
    array([[1., 2.]])
    """
    kind = value.get("kind") if isinstance(value, dict) else None
    if kind not in KINDS:
        raise InputError(f"expected a scaling of kind {', '.join(KINDS)}, got {kind!r}")
    given = {k: v for k, v in value.items() if k != "kind"}
    try:
        if kind == "temperature":
            given |= {k: math.inf if given.get(k) is None else float(given[k]) for k in ("log_se", "effective_rows")}
            given |= {k: float(given[k]) for k in ("groups", "skew") if given.get(k) is not None}
            return TemperatureScaling(**given)
        arrays = {k: np.asarray(v, dtype=np.float64) for k, v in given.items()}
        return VectorScaling(**arrays) if kind == "vector" else MatrixScaling(**arrays)
    except InputError:
        raise
    except (TypeError, ValueError) as error:
        raise InputError(f"expected the fields of a {kind} scaling, got {sorted(given)}: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return None if isinstance(value, float) and not math.isfinite(value) else value
