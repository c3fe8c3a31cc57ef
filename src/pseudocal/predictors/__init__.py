"""Predictors: models of any kind as functions from a batch of inputs to logits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pseudocal.arrays import (
    InputError,
    Inputs,
    Logits,
    Maps,
    Predictor,
    as_logits,
    as_maps,
    as_numpy,
    binary_logits,
    check_rows,
    looks_like_probabilities,
    probability_scale,
)
from pseudocal.batches import count
from pseudocal.files import brief
from pseudocal.maps import check_maps

__all__ = [
    "Checked",
    "Deferred",
    "as_predictor",
    "check_same_classes",
    "models_in",
    "second_logits",
]

WHILE_PREDICTING = "pseudocal: while the model predicted"  # how the note of an error begins


@dataclass(frozen=True)
class Deferred:
    """A model that each worker creates itself, instead of receiving it.

    >>> as_predictor(Deferred(lambda: lambda x: 2 * x))(21)
    42

    For example, `pseudocal.app.model_file("model.onnx")` is opened by each worker from its path.

    Attributes:
        make: Creates the model where it will run.

    """

    make: Callable[[], Any]


def as_predictor(model: Any) -> Predictor:
    """Turn a model into a `Predictor`.

    >>> as_predictor(lambda x: 2 * x)(np.array([[1.0, 0.0]]))
    array([[2., 0.]])

    Args:
        model: A torch module, a fitted scikit-learn classifier, a `Deferred` or any callable.

    """
    if isinstance(model, Deferred):
        return as_predictor(model.make())
    if "torch" in sys.modules and isinstance(model, sys.modules["torch"].nn.Module):
        from pseudocal.predictors.torch_module import TorchPredictor

        return TorchPredictor(model)
    if hasattr(model, "predict_proba") or hasattr(model, "decision_function"):
        from pseudocal.predictors.classifier import ClassifierPredictor

        return ClassifierPredictor(model)
    if not callable(model):
        raise InputError(
            "expected a model: a callable, a torch module or a fitted scikit-learn classifier, "
            f"got {type(model).__name__}"
        )
    return model  # type: ignore[no-any-return]


def models_in(given: Any) -> list[Any]:
    """The models in an argument that takes one model, a sequence of them, or None.

    >>> models_in(None), models_in(len), models_in((len, max))
    ([], [<built-in function len>], [<built-in function len>, <built-in function max>])
    """
    if given is None:
        return []
    return list(given) if isinstance(given, list | tuple) else [given]


def second_logits(
    seconds: Sequence[Predictor], inputs: Inputs, logits: Logits | Maps
) -> list[Logits]:
    """What each second model predicts for inputs that the first model has predicted.

    It must have its classes.

    >>> second_logits([lambda x: 3 * x], np.array([[2.0, 0.0]]), np.array([[1.0, 0.0]]))
    [array([[6., 0.]])]
    """
    if logits.ndim > 2 and seconds:
        raise InputError(
            "expected no second opinion for a segmentation model, got one for maps "
            f"{logits.shape}: in our tests two such models shared far more mistakes on real pixels "
            "than on mixup samples, so the estimate was too high"
        )
    found = [_predicted_by(second, inputs) for second in seconds]
    for its in found:
        if its.ndim != logits.ndim:
            raise InputError(
                f"expected a second opinion of shape {logits.shape}, as the model, got {its.shape}"
            )
        if its.shape != logits.shape:
            raise InputError(
                f"expected a second opinion on {logits.shape[1]} classes, got {its.shape[1]}"
            )
    return found


def _predicted_by(second: Predictor, inputs: Inputs) -> Logits:
    """What a second model predicts; an error about the inputs says that it is not the first."""
    try:
        return second(inputs)
    except InputError:
        raise
    except (ValueError, KeyError) as error:
        if any(kind.__name__ == "NotFittedError" for kind in type(error).__mro__):
            raise InputError(
                f"the second opinion is not fitted: {error} Fit it first, since it is never refitted"
            ) from error
        raise InputError(
            f"the second opinion does not accept the inputs of the model: {error}; pass a second "
            "opinion that was trained on the same columns"
        ) from error


def check_same_classes(model: Checked, seconds: Sequence[Checked]) -> None:
    """Refuse second classifiers of scikit-learn whose classes or their order differ.

    Models without names of classes are compared by the number of their logits only, and so are
    names with the positions 0, 1, ... of encoded labels.
    """
    names = model.class_names
    for second in seconds:
        others = second.class_names
        if names is None or others is None or names == others or _encoded(names, others):
            continue
        why = "they have the same classes in another order"
        if set(names) != set(others):
            why = "their predictions would be compared by position"
        raise InputError(
            f"expected a second opinion with the classes {brief(names)} of the model, got "
            f"{brief(others)}: {why}; fit both on labels of the same classes"
        )


def _encoded(names: list[Any], others: list[Any]) -> bool:
    """Whether one of two lists of classes has names, and the other their positions."""
    return any(
        positions == [*range(len(labels))] and all(isinstance(label, str) for label in labels)
        for labels, positions in ((names, others), (others, names))
    )


class Checked:
    """A predictor that checks every output of a model and counts the inputs it predicts.

    If the model raises, a note with the batch is added to the error.

    Args:
        predict: The model.
        binary: Whether it returns one logit z per input, which stands for the two logits (0, z).
        doubt: Whether to refuse a first output that looks like probabilities.

    """

    def __init__(self, predict: Predictor, *, binary: bool = False, doubt: bool = True) -> None:
        self.rows = 0
        self._doubt = doubt
        self._predict = predict
        self._binary = binary
        self._classes: int | None = None
        self._sizes: dict[
            tuple[int, ...], tuple[int, ...]
        ] = {}  # sizes of maps by shape of the inputs

    @property
    def class_names(self) -> list[Any] | None:
        """The names of the classes, if the model is a classifier of scikit-learn."""
        found: list[Any] | None = getattr(self._predict, "class_names", None)
        return found

    def __call__(self, x: Inputs, /) -> Logits | Maps:
        """Predict one batch."""
        try:
            output = self._predict(x)
        except Exception as error:
            error.add_note(
                f"{WHILE_PREDICTING} a batch of shape {tuple(x.shape)}, after {self.rows} rows"
            )
            raise
        logits = self._read(as_numpy(output, "logits"))
        if len(logits) != count(x):
            raise InputError(
                f"expected one row of logits for each of {count(x)} inputs, got shape "
                f"{logits.shape}"
            )
        if logits.ndim == 4:
            _check_layout(tuple(x.shape), logits)
            check_maps(logits)
            self._check_size(x, logits)
        else:
            check_rows(logits)
        if self._classes is None:
            self._classes = logits.shape[1]
            few = logits if logits.ndim == 2 else logits[0].reshape(len(logits[0]), -1)[:, :999].T
            scale = 1 if looks_like_probabilities(few) else probability_scale(few)
            if self._doubt and scale is not None:
                what, model = ("probabilities", "model(x)")
                if scale != 1:
                    what, model = ("percentages", f"model(x) / {scale}")
                raise InputError(
                    f"the outputs look like {what}, not logits: they lie between 0 and {scale}; "
                    f"pass their logarithm instead: lambda x: np.log({model})"
                )
        if logits.shape[1] != self._classes:
            raise InputError(
                f"expected logits for {self._classes} classes as before, got shape {logits.shape}"
            )
        self.rows += len(logits)
        return (
            logits if logits.dtype.itemsize >= 4 or logits.ndim == 4 else logits.astype(np.float32)
        )

    def _check_size(self, x: Inputs, maps: Maps) -> None:
        """Reject maps of another size than before for the same input shape.

        Pairs are compared pixel by pixel.
        """
        size = self._sizes.setdefault(tuple(x.shape[1:]), maps.shape[2:])
        if size != maps.shape[2:]:
            got = f"{maps.shape[2:]} after {size} for inputs of shape {tuple(x.shape[1:])}"
            raise InputError(f"expected maps of one size for inputs of one size, got {got}")

    def _read(self, output: NDArray[Any]) -> Logits | Maps:
        if output.ndim < 3:
            return as_logits(binary_logits(output) if self._binary else output)
        if self._binary:
            output = output[:, None] if output.ndim == 3 else output
            output = np.concatenate([np.zeros_like(output), output], axis=1)
        if output.ndim != 4:
            raise InputError(
                "expected logits of shape (n, classes) or (n, classes, h, w), got shape "
                f"{output.shape}"
            )
        return as_maps(output)


def _check_layout(shape: tuple[int, ...], maps: Maps) -> None:
    """Reject maps whose classes come last.

    The two axes before are then the height and the width of the inputs.
    """
    _, height, width, classes = maps.shape
    if shape[2:] == (height, width) and classes < min(height, width):
        raise InputError(
            f"expected maps (n, classes, height, width), got {maps.shape}: are the classes last?"
        )
