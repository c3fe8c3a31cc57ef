"""Scalings as plain JSON values and back, checked on the way in: a file may come from anyone."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np

from pseudocal.arrays import InputError
from pseudocal.scaling.linear import MatrixScaling, VectorScaling
from pseudocal.scaling.temperature import TemperatureScaling

Scaling = TemperatureScaling | VectorScaling | MatrixScaling

KINDS: dict[str, type[TemperatureScaling] | type[VectorScaling] | type[MatrixScaling]] = {
    "matrix": MatrixScaling,
    "temperature": TemperatureScaling,
    "vector": VectorScaling,
}


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
