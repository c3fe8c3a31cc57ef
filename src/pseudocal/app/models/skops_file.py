"""A scikit-learn model saved with skops.

All types in the file are known before any object is built.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pseudocal.app.models.model import Expects, OpenModel
from pseudocal.arrays import InputError
from pseudocal.extras import require
from pseudocal.predictors.classifier import ClassifierPredictor
from pseudocal.skipped import one_line


def open_skops(path: Path, **_: Any) -> OpenModel:
    """Open a classifier that `skops.io.dump` wrote, if all of its types are known to be safe."""
    skops = require("skops.io", "sklearn")
    try:
        unknown = skops.get_untrusted_types(file=path)
        model = None if unknown else skops.load(path)
    except Exception as error:  # a damaged file may raise anything
        raise InputError(
            f"expected a skops file, got {path}, which cannot be read: {one_line(error)}"
        ) from error
    if unknown:
        raise InputError(
            f"expected types that skops trusts, got {', '.join(unknown)} in {path}: "
            "if you trust the file, load it in your own code and pass that as module:function"
        )
    if not hasattr(model, "predict_proba") and not hasattr(model, "decision_function"):
        raise InputError(f"expected a classifier, got a {type(model).__name__} in {path}")
    try:
        return of_classifier(model)
    except Exception as error:  # attributes that scikit-learn would not write
        raise InputError(
            f"expected a fitted classifier in {path}, got {one_line(error)}"
        ) from error


def of_classifier(model: Any) -> OpenModel:
    """Wrap a fitted classifier, with the names of its features and classes."""
    names = getattr(model, "feature_names_in_", None)
    width = getattr(model, "n_features_in_", None)
    first = getattr(model, "steps", [(None, model)])[0][1]  # of a pipeline
    texts = hasattr(first, "build_analyzer")  # which scikit-learn's vectorizers of texts have
    columns = None if names is None else tuple(str(name) for name in names)
    return OpenModel(
        kind="sklearn",
        predict=ClassifierPredictor(model),
        expects=Expects(None if width is None else (int(width),), None, columns, text=texts),
        classes=tuple(str(c) for c in getattr(model, "classes_", ())),
        notes=(f"{type(model).__name__} of {'texts' if texts else f'{width} features'}",),
    )
