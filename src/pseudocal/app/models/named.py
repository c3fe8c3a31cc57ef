"""Anything callable, by the name `module:function`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

from pseudocal.app.models.opened import OpenModel
from pseudocal.app.models.skops_file import of_classifier
from pseudocal.arrays import InputError
from pseudocal.predictors import as_predictor


def open_named(name: str, *, device: str = "cpu", **_: Any) -> OpenModel:
    """Import a module, the current folder first, and take a function, torch module or classifier from it.

    >>> open_named("numpy:negative").predict(2.0)
    np.float64(-2.0)
    """
    module_name, _colon, attribute = name.partition(":")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        model: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            model = getattr(model, part)
    except (ImportError, AttributeError) as error:
        raise InputError(f"expected module:function that can be imported, got {name}: {error}") from error
    if hasattr(model, "predict_proba") or hasattr(model, "decision_function"):
        return of_classifier(model)
    if "torch" in sys.modules and isinstance(model, sys.modules["torch"].nn.Module):
        model.to(device)
    return OpenModel("callable", as_predictor(model), notes=(f"{type(model).__name__} {name}",))
