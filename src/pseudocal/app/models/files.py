"""Open a model file of any supported format.

The format is recognised by content rather than by name.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from pseudocal.app.models.hugging_face import open_hugging_face
from pseudocal.app.models.hugging_face_source import is_hub_name, no_such_model
from pseudocal.app.models.model import SECOND_ONLY, SIGMOID_EPS, OpenModel, Ship, UntrustedError
from pseudocal.app.models.onnx_file import open_onnx
from pseudocal.app.models.skops_file import of_classifier, open_skops
from pseudocal.app.models.state_dict_file import TENSOR_FILES, open_state_dict
from pseudocal.app.models.torch_files import open_exported, open_torchscript
from pseudocal.arrays import (
    Floats,
    InputError,
    Inputs,
    Logits,
    Predictor,
    binary_logits,
    looks_like_probabilities,
)
from pseudocal.extras import MissingExtraError
from pseudocal.predictors import Deferred, as_predictor
from pseudocal.predictors.classifier import floored
from pseudocal.skipped import one_line

MODEL_FORMATS = "a file of ONNX, torch.export, TorchScript or skops"
PICKLE_REFUSED = (
    "a pickle, which runs whatever code its author put into it when it is loaded, and is never opened here: "
    "save a torch model as ONNX (torch.onnx.export), a scikit-learn model with skops.io.dump; for the state dict of a "
    "ResNet or a ViT, name its architecture"
)
CAN_RUN_CODE = {
    "pt2": "a torch.export file",
    "torchscript": "a TorchScript file",
}  # they can run code or write files
CODE = re.compile(r"[\w.]+:[\w.]+")  # module:function
Meaning = Literal["logits", "probabilities"]


def open_model(
    name: str,
    *,
    trust: bool = False,
    typed: bool = True,
    architecture: str | None = None,
    classes: tuple[str, ...] = (),
    **options: Any,
) -> OpenModel:
    """Open a model file, a Hugging Face folder, `hf:owner/name` on the hub, or `module:function`.

    An error of whatever reads the file is raised as an InputError with its type and text.

    Args:
        name: the path, `hf:owner/name`, or `module:function`, which is the user's own code.
        trust: whether the file may run code; if not, `.pt2` and TorchScript are refused before
            torch sees them.
        typed: whether the user gave the name. If it was read from a file, `module:function` needs
            `trust` too, and is not looked for in the current folder.
        architecture: the network of a state dict, a name in
            `app.models.architectures.ARCHITECTURES`; not used for other formats.
        classes: the class names, for a zero-shot encoder; not used for other formats.
        **options: arguments of the opener for that format: `device`, `output`, `outputs`, `binary`.

    """
    if architecture is not None and Path(name).suffix in TENSOR_FILES:
        return open_state_dict(Path(name), architecture=architecture, **options)
    kind = kind_of(name)
    if kind in CAN_RUN_CODE and not trust:
        raise UntrustedError(
            "expected a model that cannot run code (ONNX, safetensors, skops), "
            f"got {name}, {CAN_RUN_CODE[kind]}, which can: "
            'export it with torch.onnx.export(model, (x,), "model.onnx"), or say that you trust it with trust=True'
        )
    if kind == "callable" and not (typed or trust):
        raise UntrustedError(
            f"expected a model that is no code in a file from which names are read, got {name}, "
            "which is imported and runs: say that you trust it with trust=True"
        )
    try:
        found = _opened(name, kind, classes, options, trust=trust, typed=typed)
    except (InputError, MissingExtraError, OSError):
        raise
    except Exception as error:  # a damaged file makes its reader raise anything
        raise InputError(f"expected a model that opens, got {name}: {_with_type(error)}") from error
    return found if found.ship is None else replace(found, ship=_exporting(name, found.ship))


def _opened(
    name: str,
    kind: str,
    classes: tuple[str, ...],
    options: dict[str, Any],
    *,
    trust: bool,
    typed: bool,
) -> OpenModel:
    if kind == "callable":
        return open_function(name, here=typed, **options)
    if kind == "surrogate":
        from pseudocal.app.models.encoders import (
            open_surrogate,
        )  # which opens its own files by `open_model`

        return open_surrogate(name, device=options.get("device", "cpu"), trust=trust, typed=typed)
    if kind == "zero-shot":
        from pseudocal.app.models.zero_shot import open_zero_shot  # which few need

        return open_zero_shot(name, classes, device=options.get("device", "cpu"))
    is_path = not is_hub_name(name)
    return OPENERS[kind](Path(name) if is_path else name, **options)


def _exporting(name: str, ship: Ship) -> Ship:
    """Export a model; what only shows then to be damaged is an InputError too."""

    def export(temperature: float, folder: Path, probe: Inputs) -> list[str]:
        try:
            return ship(temperature, folder, probe)
        except (InputError, MissingExtraError, OSError):
            raise
        except Exception as error:
            raise InputError(
                f"expected a model that can be exported, got {name}: {_with_type(error)}"
            ) from error

    return export


def _with_type(error: Exception) -> str:
    """The type and the first line of an error.

    >>> _with_type(KeyError(0))
    'KeyError: 0'
    """
    return f"{type(error).__name__}: {one_line(error)}"


def model_file(
    name: str,
    *,
    outputs: Meaning | None = None,
    binary: bool = False,
    trust: bool = False,
    **options: Any,
) -> Deferred:
    """Return a model that each worker opens for itself with `open_model`, and whose outputs are read as logits.

    Args:
        name: the path, `hf:owner/name`, or `module:function`, valid on every worker.
        outputs: whether the model returns "logits" or "probabilities"; None for logits, refused if
            they look like probabilities.
        binary: whether the model returns one number per row, for the second of two classes.
        trust: whether the file may run code, as `.pt2` and TorchScript can; they are refused
            without it.
        **options: other arguments of `open_model`, and of the opener for that format: `device`,
            `output`.

    """
    return Deferred(
        partial(_logits_of, name, outputs=outputs, binary=binary, trust=trust, **options)
    )


def _logits_of(name: str, *, outputs: Meaning | None, binary: bool, **options: Any) -> Predictor:
    return logits_reader(
        open_model(name, outputs=outputs, binary=binary, **options), outputs, binary
    )


def kind_of(name: str) -> str:
    """Recognise the format of a model.

    >>> kind_of("package.models:predict"), kind_of("hf:microsoft/resnet-18"), kind_of("surrogate:columns")
    ('callable', 'huggingface', 'surrogate')
    >>> kind_of("microsoft/resnet-18")
    Traceback (most recent call last):
    pseudocal.arrays.InputError: no such file or folder: microsoft/resnet-18; to load it from the
    Hugging Face hub, \
write hf:microsoft/resnet-18
    """
    path = Path(name)
    if name.startswith(SECOND_ONLY):
        return name.partition(":")[0]
    if is_hub_name(name):
        return "huggingface"
    if path.is_dir():
        if not (path / "config.json").exists():
            raise InputError(f"expected a Hugging Face folder with a config.json, got {name}")
        return "huggingface"
    if path.is_file():
        return _kind_of_file(path)
    if path.exists():
        raise InputError(f"expected a model file, got {name}: a pipe or a device")
    if CODE.fullmatch(name):
        return "callable"
    raise no_such_model(name)


def _kind_of_file(path: Path) -> str:
    if zipfile.is_zipfile(path):
        return _kind_of_zip(path)
    with path.open("rb") as file:
        start = file.read(2)
    if not start:
        raise InputError(f"expected a model file, got {path}, which is empty")
    if start[:1] == b"\x80" or path.suffix in (".joblib", ".pickle", ".pkl", ".pth"):
        raise InputError(f"expected a model file, got {path}, {PICKLE_REFUSED}")
    if path.suffix != ".onnx":
        raise InputError(f"expected {MODEL_FORMATS}, got {path}, which is none of them")
    return "onnx"


def _kind_of_zip(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except Exception as error:  # a damaged archive may raise anything
        raise InputError(
            f"expected {MODEL_FORMATS}, got {path}, a damaged archive: {one_line(error)}"
        ) from error
    members = {name.partition("/")[2] or name for name in names} | set(names)
    if "schema.json" in members:
        return "sklearn"
    if members & {"archive_format", "serialized_exported_program.json"}:
        return "pt2"
    if "constants.pkl" in members and any(name.startswith("code/") for name in members):
        return "torchscript"
    if "data.pkl" in members:
        raise InputError(f"expected a model file, got {path}, {PICKLE_REFUSED}")
    raise InputError(f"expected {MODEL_FORMATS}, got {path}, another kind of archive")


def open_function(name: str, *, device: str = "cpu", here: bool = True, **_: Any) -> OpenModel:
    """Import a function, torch module or classifier from a module.

    >>> open_function("numpy:negative").predict(2.0)
    np.float64(-2.0)

    Args:
        name: `module:function`.
        device: where a torch module runs.
        here: whether to search the current folder, first; if not, it is not searched at all.

    """
    module_name, _colon, attribute = name.partition(":")
    if here and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        with nullcontext() if here else _without_current_folder():
            model: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            model = getattr(model, part)
    except (
        ImportError,
        AttributeError,
        ValueError,
    ) as error:  # ValueError: an empty part of the name
        raise InputError(
            f"expected module:function that can be imported, got {name}: {error}"
        ) from error
    model = _made_once(model, name)
    if hasattr(model, "predict_proba") or hasattr(model, "decision_function"):
        return of_classifier(model)
    if "torch" in sys.modules and isinstance(model, sys.modules["torch"].nn.Module):
        model.to(device)
    return OpenModel("callable", as_predictor(model), notes=(f"{type(model).__name__} {name}",))


@contextmanager
def _without_current_folder() -> Iterator[None]:
    """Import nothing from the current folder, unless `PYTHONPATH` has it as an absolute path."""
    wanted = [
        path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(path)
    ]
    before = sys.path
    sys.path = [
        path
        for path in before
        if path in wanted or os.path.realpath(path or ".") != os.path.realpath(".")
    ]
    try:
        yield
    finally:
        sys.path = before


def _made_once(model: Any, name: str) -> Any:
    """Call a function that takes no argument: it makes the model, rather than being it.

    >>> _made_once(lambda: np.negative, "module:make")(2.0), _made_once(np.negative, "module:predict")(2.0)
    (np.float64(-2.0), np.float64(-2.0))
    """
    if not inspect.isfunction(model) or inspect.signature(model).parameters:
        return model
    try:
        made = model()
    except Exception as error:  # it is the user's code
        raise InputError(
            f"expected a function that makes a model, got {name}, which raised {one_line(error)}"
        ) from error
    if (
        not callable(made)
        and not hasattr(made, "predict_proba")
        and not hasattr(made, "decision_function")
    ):
        raise InputError(
            f"expected a function that makes a model, got {name}, which made a {type(made).__name__}"
        )
    return made


OPENERS: dict[str, Callable[..., OpenModel]] = {
    "huggingface": open_hugging_face,
    "onnx": open_onnx,
    "pt2": open_exported,
    "sklearn": open_skops,
    "torchscript": open_torchscript,
}


@dataclass(frozen=True)
class AsLogits:
    """Turn a model's outputs into logits `(n, classes)`, or maps of them.

    >>> AsLogits(lambda x: x, outputs="probabilities")(np.array([[0.5, 0.5]])).round(3)
    array([[-0.693, -0.693]])
    >>> AsLogits(lambda x: x, outputs="probabilities", binary=True)(np.array([[0.5], [0.75]])).round(3)
    array([[0.   , 0.   ],
           [0.   , 1.099]])

    Attributes:
        predict: the model.
        outputs: whether the model returns "logits" or "probabilities"; None for logits, refused if
            they look like probabilities.
        binary: whether the model returns one number per row: the logit or the probability of the
            second class.

    """

    predict: Predictor
    outputs: Meaning | None = None
    binary: bool = False

    def __call__(self, x: Inputs, /) -> Logits:
        """Predict one batch."""
        values = np.asarray(self.predict(x))
        _check_shape(values, self.binary)
        if self.outputs == "probabilities":
            return _logit(values) if self.binary else _log(values)
        if self.outputs is None and _suspicious(values, self.binary):
            raise InputError(
                f"expected logits, got numbers from 0 to 1{'' if self.binary else ' that sum to one'}, which look like "
                'probabilities: give outputs="probabilities", or outputs="logits" if they are logits after all'
            )
        return binary_logits(values) if self.binary else values


def logits_reader(model: OpenModel, outputs: Meaning | None, binary: bool) -> Predictor:
    """Wrap an open model so that it returns logits, unless it returns features.

    A zero-shot encoder has only logits.

    Args:
        model: the model.
        outputs: as in `AsLogits`.
        binary: as in `AsLogits`.

    """
    if model.encodes:
        return model.predict
    return (
        AsLogits(model.predict, "logits")
        if model.kind == "zero-shot"
        else AsLogits(model.predict, outputs, binary)
    )


def _check_shape(values: Floats, binary: bool) -> None:
    if values.ndim > 2 and (values.ndim != 4 or binary):
        what = "of every pixel (n, classes, height, width)" + (
            " for two classes or more" if binary else ""
        )
        raise InputError(
            f"expected logits of shape (n, classes) or {what}, got shape {values.shape}"
        )
    if not binary and (values.ndim == 1 or values.shape[1] < 2):
        raise InputError(
            f"expected logits for at least two classes, got shape {values.shape}: "
            "give binary=True if the one number per row is for the second of two classes"
        )


def _suspicious(values: Floats, binary: bool) -> bool:
    if binary:
        return bool(((values >= 0) & (values <= 1)).all())
    return looks_like_probabilities(values)


def _log(p: Floats) -> Logits:
    if not looks_like_probabilities(p):
        raise InputError(
            f"expected probabilities that sum to one in each row, got {p[0]} in the first of a batch"
        )
    with np.errstate(divide="ignore"):
        return floored(np.log(p))


def _logit(p: Floats) -> Logits:
    if not _suspicious(p, True):
        raise InputError(f"expected probabilities from 0 to 1, got {p.min()} to {p.max()}")
    p = np.clip(p, SIGMOID_EPS, 1 - SIGMOID_EPS)
    return binary_logits(np.log(p) - np.log1p(-p))


def check_class_names(ours: tuple[str, ...], theirs: tuple[str, ...]) -> None:
    """Refuse a second opinion whose classes have other names."""
    if not ours or not theirs or ours == theirs:
        return
    longest = max(len(ours), len(theirs))
    padded = [(*names, *[""] * (longest - len(names))) for names in (ours, theirs)]
    own, other = next(pair for pair in zip(*padded, strict=True) if pair[0] != pair[1])
    raise InputError(
        f"expected a second opinion with the classes of the model, got {other!r} instead of {own!r}"
    )
