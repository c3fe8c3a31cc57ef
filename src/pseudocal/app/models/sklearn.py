"""A scikit-learn model saved with skops.

All types in the file are known before any object is built.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pseudocal.app.models.model import Expects, OpenModel, UntrustedError, or_input_error
from pseudocal.app.models.sklearn_types import TRUSTED, check_trees
from pseudocal.arrays import InputError
from pseudocal.extras import require
from pseudocal.predictors.classifier import ClassifierPredictor


def open_skops(path: Path, *, trust: bool = False, **_: Any) -> OpenModel:
    """Open a classifier that `skops.io.dump` wrote, if all of its types are known to be safe.

    A trusted file may hold other types too, which can run code.
    """
    skops = require("skops.io", "sklearn")
    with or_input_error(f"the skops file {path} cannot be read"):
        unknown = skops.get_untrusted_types(file=path)
    foreign = [name for name in unknown if name not in TRUSTED]
    if foreign and not trust:
        raise UntrustedError(
            f"{path} holds types that are not scikit-learn's own data, {', '.join(foreign)}, and "
            "may run code: trust the file if you know who made it"
        )
    with or_input_error(f"the skops file {path} cannot be read"):
        model = skops.load(path, trusted=unknown)
        if not trust:
            check_trees(model)
    if not is_classifier(model):
        raise InputError(f"{path} holds a {type(model).__name__}, not a classifier")
    with or_input_error(f"{path} holds no fitted classifier"):  # scikit-learn would not write it
        return of_classifier(model)


def is_classifier(model: Any) -> bool:
    """Whether an object predicts probabilities or decision values, as scikit-learn names them."""
    return hasattr(model, "predict_proba") or hasattr(model, "decision_function")


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
        expects=Expects(
            None if width is None else (int(width),),
            None,
            columns,
            text=texts,
            frames=not texts,
        ),
        classes=tuple(str(c) for c in getattr(model, "classes_", ())),
        notes=(f"{type(model).__name__} of {'texts' if texts else f'{width} features'}",),
    )
