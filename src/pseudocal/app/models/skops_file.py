"""A scikit-learn model saved with skops, whose file names every type it holds before one of them is built."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pseudocal.app.models.opened import Expects, OpenModel
from pseudocal.arrays import InputError
from pseudocal.extras import MissingExtraError
from pseudocal.predictors.classifier import ClassifierPredictor


def open_skops(path: Path, **_: Any) -> OpenModel:
    """Open a classifier that `skops.io.dump` wrote, if it holds nothing but types known to be safe."""
    try:
        import skops.io
    except ImportError as error:
        raise MissingExtraError("skops", "sklearn") from error
    try:
        unknown = skops.io.get_untrusted_types(file=path)
        model = None if unknown else skops.io.load(path)
    except Exception as error:
        raise InputError(f"expected a skops file, got {path}, which cannot be read: {error}") from error
    if unknown:
        raise InputError(
            f"expected types that skops trusts, got {', '.join(unknown)} in {path}: "
            "if you trust the file, load it in a function of your own and pass that as module:function"
        )
    if not hasattr(model, "predict_proba") and not hasattr(model, "decision_function"):
        raise InputError(f"expected a classifier, got a {type(model).__name__} in {path}")
    return of_classifier(model)


def of_classifier(model: Any) -> OpenModel:
    """A fitted classifier with what it says of its features and classes."""
    names = getattr(model, "feature_names_in_", None)
    width = getattr(model, "n_features_in_", None)
    return OpenModel(
        kind="sklearn",
        predict=ClassifierPredictor(model),
        expects=Expects(None if width is None else (int(width),), None, None if names is None else tuple(names)),
        classes=tuple(str(c) for c in getattr(model, "classes_", ())),
        notes=(f"{type(model).__name__} of {width} features",),
    )
