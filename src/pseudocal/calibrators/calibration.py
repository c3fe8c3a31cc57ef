"""What every calibrator gives back: a scaling, how well it is known, and where it came from."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from pseudocal.arrays import InputError, Logits, Probabilities, as_numpy, softmax
from pseudocal.calibrators.trust import Trust
from pseudocal.files import replacing
from pseudocal.maps import by_rows
from pseudocal.scaling import Scaling, TemperatureScaling, scaling_from_dict, scaling_to_dict

FORMAT = "pseudocal-calibration"
FORMAT_VERSION = 1


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


@dataclass(frozen=True)
class Calibration:
    """A fitted correction of a model's logits, with all that it takes to judge and to repeat it.

    >>> calibration = Calibration("pseudocal", TemperatureScaling(2.0, log_se=0.05, rows=400))
    >>> calibration
    Calibration(pseudocal: T = 2.000 in [1.821, 2.217], from 400 rows)
    >>> calibration.probabilities([[2 * np.log(3), 0.0]]).round(4)
    array([[0.75, 0.25]])
    """

    method: str
    scaling: Scaling
    settings: dict[str, Any] = field(default_factory=dict)  # what was asked for, the seed included
    counts: dict[str, int] = field(default_factory=dict)  # what was done: rows read, pairs mixed, ...
    versions: dict[str, str] = field(default_factory=versions)
    trust: Trust | None = None  # how far to believe it, where that was judged

    def __call__(self, logits: ArrayLike) -> Logits:
        """Correct logits `(n, classes)` or `(n, classes, height, width)`."""
        return _applied(self.scaling, logits)

    def probabilities(self, logits: ArrayLike) -> Probabilities:
        """Calibrated probabilities for logits `(n, classes)` or `(n, classes, height, width)`."""
        return _applied(lambda rows: softmax(self.scaling(rows)), logits)

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
        }
        path = Path(path)
        if not path.parent.is_dir():
            raise InputError(f"expected a folder to write {path.name} into, got {path.parent}, which is none")
        text = json.dumps(content, indent=2, allow_nan=False) + "\n"
        with replacing(path) as aside:
            aside.write_text(text, encoding="utf-8")

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
        )
