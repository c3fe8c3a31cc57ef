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

from pseudocal.app.models.boosting import (
    boosting_kind,
    open_catboost,
    open_lightgbm,
    open_xgboost,
)
from pseudocal.app.models.encoders import (
    COLUMNS,
    PACKAGED,
    open_encoder,
    open_packaged,
    open_zero_shot,
)
from pseudocal.app.models.hugging_face import is_hub_name, no_such_model, open_hugging_face
from pseudocal.app.models.model import (
    SECOND_ONLY,
    SIGMOID_EPS,
    Expects,
    OpenModel,
    UntrustedError,
    or_input_error,
)
from pseudocal.app.models.onnx import open_onnx
from pseudocal.app.models.sklearn import is_classifier, of_classifier, open_skops
from pseudocal.app.models.torch_files import open_exported, open_torchscript
from pseudocal.arrays import (
    PERCENT,
    Floats,
    InputError,
    Inputs,
    Logits,
    Predictor,
    binary_logits,
    looks_like_probabilities,
    probability_scale,
)
from pseudocal.extras import MissingExtraError, require
from pseudocal.predictors import Deferred, as_predictor
from pseudocal.predictors.classifier import floored
from pseudocal.skipped import one_line

MODEL_FORMATS = "a file of ONNX, torch.export, TorchScript, skops, XGBoost, LightGBM or CatBoost"
PICKLE_REFUSED = (
    "a pickle, which runs whatever code its author put into it when it is loaded, and is never "
    "opened here: save a torch model as ONNX (torch.onnx.export), a scikit-learn model with "
    "skops.io.dump; for the state dict of a ResNet or a ViT, name its architecture"
)
# formats that can run code or write files
CAN_RUN_CODE = {"pt2": "a torch.export file", "torchscript": "a TorchScript file"}
# kinds whose files cannot hold a temperature
NOT_EXPORTED = frozenset({"callable", "catboost", "lightgbm", "sklearn", "xgboost"})
PICKLE_SUFFIXES = (".joblib", ".pickle", ".pkl", ".pth")
TENSOR_SUFFIXES = (".bin", ".pt", ".pth", ".safetensors", ".tar")
CODE = re.compile(r"[\w.]+:[\w.]+")  # module:function
LARGEST_ERROR = 1e-3  # of a sum of probabilities, as in `looks_like_probabilities`
ROUNDED = 0.05  # error of such a sum after rounding to two digits
OutputType = Literal["logits", "probabilities"]


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
            `app.models.state_dicts.ARCHITECTURES`; not used for other formats.
        classes: the class names, for a zero-shot encoder; not used for other formats.
        **options: arguments of the opener for that format: `device`, `logits_tensor`,
            `output_type`, `binary`.

    """
    if architecture is not None and Path(name).suffix in TENSOR_SUFFIXES:
        kind = "state dict"
        options["architecture"] = architecture
    else:
        kind = kind_of(name)
    if kind in CAN_RUN_CODE and not trust:
        raise UntrustedError(
            f"{name} is {CAN_RUN_CODE[kind]}, which can run code: export it with "
            'torch.onnx.export(model, (x,), "model.onnx"), or trust it'
        )
    if kind == "callable" and not (typed or trust):
        raise UntrustedError(
            f"a file names the model {name}, which is code that would be imported and run: look at "
            "it first"
        )
    named = kind in ("callable", "surrogate", "zero-shot") or is_hub_name(name)
    source = name if named else Path(name)
    with _naming(name, "be opened"):
        found = OPENERS[kind](source, classes=classes, trust=trust, typed=typed, **options)
    found = replace(found, predict=NamedPredictor(name, found.predict))
    if found.export is None:
        return found
    # the damage of a file may show only when it is exported
    return replace(found, export=_naming(name, "be exported")(found.export))


@contextmanager
def _naming(name: str, what: str, hint: str = "") -> Iterator[None]:
    """Name the model and the type of an error: a damaged file makes its reader raise anything."""
    try:
        yield
    except (InputError, MissingExtraError, OSError):
        raise
    except Exception as error:
        why = f"{type(error).__name__}: {reason_of(error)}"
        raise InputError(f"the model {name} cannot {what}: {why}{hint}") from error


def reason_of(error: Exception) -> str:
    """What an error of a runtime says, on one line, without the position in the graph.

    >>> reason_of(RuntimeError("Non-zero status code. Name:'Gemm' Status Message: wrong size"))
    'wrong size'
    """
    return one_line(error).rpartition("Status Message: ")[2]


@dataclass(frozen=True)
class NamedPredictor:
    """A model whose errors name it, and the shape of the inputs that it cannot run."""

    name: str
    predict: Predictor

    def __call__(self, x: Inputs, /) -> Any:
        """Predict one batch."""
        shape = tuple(np.shape(x)[1:])
        what = "run inputs"
        hint = ""
        if shape:
            what += f" of shape {'x'.join(map(str, shape))}"
        if len(shape) == 3:
            hint = "; check --size, or --second-size of a second opinion"
        with _naming(self.name, what, hint):
            return self.predict(x)


def model_file(
    name: str,
    *,
    output_type: OutputType | None = None,
    binary: bool = False,
    trust: bool = False,
    **options: Any,
) -> Deferred:
    """Return a model that each worker opens for itself with `open_model`; it returns logits.

    Args:
        name: the path, `hf:owner/name`, or `module:function`, valid on every worker.
        output_type: whether the model returns "logits" or "probabilities"; None for logits, refused
            if they look like probabilities.
        binary: whether the model returns one number per row, for the second of two classes.
        trust: whether the file may run code, as `.pt2` and TorchScript can; they are refused
            without it.
        **options: other arguments of `open_model`, and of the opener for that format: `device`,
            `logits_tensor`.

    """
    return Deferred(
        partial(_open_logits, name, output_type=output_type, binary=binary, trust=trust, **options)
    )


def _open_logits(
    name: str, *, output_type: OutputType | None, binary: bool, **options: Any
) -> Predictor:
    model = open_model(name, output_type=output_type, binary=binary, **options)
    return logits_reader(model, output_type, binary)


def kind_of(name: str) -> str:
    """Recognise the format of a model.

    >>> kind_of("package.models:predict"), kind_of("hf:microsoft/resnet-18")
    ('callable', 'huggingface')
    >>> kind_of("surrogate:columns")
    'surrogate'
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
            raise InputError(
                f"the folder {name} has no config.json: expected a Hugging Face model (a folder of "
                "images is the data, which comes after the model)"
            )
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
        start = file.read(100)
    if not start:
        raise InputError(f"the model file {path} is empty")
    if start[:1] == b"\x80" or path.suffix in PICKLE_SUFFIXES:
        raise InputError(f"the model {path} is {PICKLE_REFUSED}", setting="architecture")
    boosted = boosting_kind(start)
    if boosted is not None:
        return boosted
    if path.suffix != ".onnx":
        raise InputError(f"expected {MODEL_FORMATS}, got {path}, which is none of them")
    return "onnx"


def _kind_of_zip(path: Path) -> str:
    damaged = f"expected {MODEL_FORMATS}, got {path}, a damaged archive"
    with or_input_error(damaged), zipfile.ZipFile(path) as archive:
        names = archive.namelist()
    members = {name.partition("/")[2] or name for name in names} | set(names)
    if "schema.json" in members:
        return "sklearn"
    if members & {"archive_format", "serialized_exported_program.json"}:
        return "pt2"
    if "constants.pkl" in members and any(name.startswith("code/") for name in members):
        return "torchscript"
    if "data.pkl" in members:
        raise InputError(f"the model {path} is {PICKLE_REFUSED}", setting="architecture")
    raise InputError(f"expected {MODEL_FORMATS}, got {path}, another kind of archive")


def open_function(name: str, *, device: str = "cpu", typed: bool = True, **_: Any) -> OpenModel:
    """Import a function, torch module or classifier from a module.

    >>> open_function("numpy:negative").predict(2.0)
    np.float64(-2.0)

    Args:
        name: `module:function`.
        device: where a torch module runs.
        typed: whether the user gave the name. Then the current folder is searched, first; if not,
            it is not searched at all.

    """
    module_name, _colon, attribute = name.partition(":")
    if typed and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        with nullcontext() if typed else _without_current_folder():
            model: Any = importlib.import_module(module_name)
        for part in attribute.split("."):
            model = getattr(model, part)
    except (ImportError, AttributeError, ValueError) as error:  # ValueError: an empty part
        where = "" if typed else "; a name from a file is not looked up in the current folder"
        raise InputError(f"the model {name} cannot be imported: {error}{where}") from error
    model = _made_once(model, name)
    if is_classifier(model):
        return of_classifier(model)
    is_module = "torch" in sys.modules and isinstance(model, sys.modules["torch"].nn.Module)
    if is_module:
        model.to(device)
    return OpenModel(
        "callable",
        as_predictor(model),
        Expects(frames=not is_module),
        notes=(f"{type(model).__name__} {name}",),
    )


@contextmanager
def _without_current_folder() -> Iterator[None]:
    """Import nothing from the current folder, unless `PYTHONPATH` has it as an absolute path."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    wanted = [path for path in given if os.path.isabs(path)]
    here = os.path.realpath(".")
    before = sys.path
    sys.path = [path for path in before if path in wanted or os.path.realpath(path or ".") != here]
    try:
        yield
    finally:
        sys.path = before


def _made_once(model: Any, name: str) -> Any:
    """Call a function that takes no argument: it makes the model, rather than being it.

    >>> _made_once(lambda: np.negative, "module:make")(2.0)
    np.float64(-2.0)
    >>> _made_once(np.negative, "module:predict")(2.0)
    np.float64(-2.0)
    """
    if not inspect.isfunction(model) or inspect.signature(model).parameters:
        return model
    try:
        made = model()
    except Exception as error:  # it is the user's code
        raise InputError(f"{name}, which makes the model, raised {one_line(error)}") from error
    if not callable(made) and not is_classifier(made):
        raise InputError(f"{name} made a {type(made).__name__} instead of a model")
    return made


def open_surrogate(
    name: str, *, device: str = "cpu", trust: bool = False, typed: bool = True, **_: Any
) -> OpenModel:
    """Open the encoder that `surrogate:BACKBONE` names; it predicts features instead of logits.

    >>> open_surrogate("surrogate:columns").notes
    ('a surrogate of the standardised columns',)

    Args:
        name: "surrogate:" and a packaged EfficientNet, a model file, a Hugging Face folder,
            `hf:owner/name`, `module:function`, or "columns" for inputs as they are, each column
            divided by its standard deviation.
        device: where the encoder runs.
        trust: whether a file may run code.
        typed: whether the user gave the name, as in `open_model`.

    """
    backbone = name.partition(":")[2]
    if backbone == COLUMNS:
        return OpenModel(
            COLUMNS, np.asarray, notes=("a surrogate of the standardised columns",), encodes=True
        )
    if backbone in PACKAGED:
        found = open_packaged(backbone, device)
    elif not backbone or not (Path(backbone).exists() or {":", "/"} & set(backbone)):
        known = ", ".join((*PACKAGED, COLUMNS))
        raise InputError(
            f"unknown features of a surrogate: {backbone!r}; use {known}, a model file, a Hugging "
            "Face folder, hf:owner/name or module:function"
        )
    elif kind_of(backbone) == "huggingface":
        found = open_encoder(backbone, device)
    else:
        found = open_model(backbone, trust=trust, typed=typed, device=device, output_type="logits")
    return replace(
        found,
        classes=(),
        notes=(f"a surrogate of the features of {backbone}",),
        encodes=True,
        export=None,
    )


def _open_state_dict(path: Path, **options: Any) -> Any:
    state_dicts = require("pseudocal.app.models.state_dicts", "torch")  # which imports torch
    return state_dicts.open_state_dict(path, **options)


OPENERS: dict[str, Callable[..., OpenModel]] = {
    "callable": open_function,
    "catboost": open_catboost,
    "huggingface": open_hugging_face,
    "lightgbm": open_lightgbm,
    "onnx": open_onnx,
    "pt2": open_exported,
    "sklearn": open_skops,
    "state dict": _open_state_dict,
    "surrogate": open_surrogate,
    "torchscript": open_torchscript,
    "xgboost": open_xgboost,
    "zero-shot": open_zero_shot,
}


@dataclass(frozen=True)
class AsLogits:
    """Turn a model's outputs into logits `(n, classes)`, or maps of them.

    >>> predict = AsLogits(lambda x: x, "probabilities")
    >>> predict(np.array([[0.5, 0.5]])).round(3)
    array([[-0.693, -0.693]])
    >>> predict = AsLogits(lambda x: x, "probabilities", binary=True)
    >>> predict(np.array([[0.5], [0.75]])).round(3)
    array([[0.   , 0.   ],
           [0.   , 1.099]])

    Attributes:
        predict: the model.
        output_type: whether the model returns "logits" or "probabilities"; None for logits, refused
            if they look like probabilities.
        binary: whether the model returns one number per row: the logit or the probability of the
            second class.

    """

    predict: Predictor
    output_type: OutputType | None = None
    binary: bool = False

    def __call__(self, x: Inputs, /) -> Logits:
        """Predict one batch."""
        values = np.asarray(self.predict(x))
        check_output_shape(values, self.binary)
        if self.output_type == "probabilities":
            return _logit(values) if self.binary else _log(values)
        if not self.binary and probability_scale(values) == PERCENT:
            raise InputError("the outputs look like percentages: divide them by 100")
        if self.output_type is None and _may_be_probabilities(values, self.binary):
            raise InputError(
                "the outputs look like probabilities, not logits: they lie between 0 and 1",
                setting="output_type",
                value='"probabilities" or "logits"',
            )
        return binary_logits(values) if self.binary else values


def logits_reader(model: OpenModel, output_type: OutputType | None, binary: bool) -> Predictor:
    """A model that returns logits, as a zero-shot encoder always does, or features."""
    if model.encodes:
        return model.predict
    if model.kind == "zero-shot":
        return AsLogits(model.predict, "logits")
    return AsLogits(model.predict, output_type, binary)


def check_output_shape(values: Floats, binary: bool = False) -> None:
    """Refuse outputs that are not logits, or one number for two classes, by their shape."""
    if values.ndim > 2 and (values.ndim != 4 or binary):
        maps = "of every pixel (n, classes, height, width)"
        if binary:
            maps += " for two classes or more"
        raise InputError(
            f"expected logits of shape (n, classes) or {maps}, got shape {values.shape}"
        )
    if not binary and (values.ndim == 1 or values.shape[1] < 2):
        raise InputError(
            f"expected logits for at least two classes, got shape {values.shape}; a model with one "
            "number for two classes is binary",
            setting="binary",
            value="True",
        )


def _may_be_probabilities(values: Floats, binary: bool) -> bool:
    within = bool(((values >= 0) & (values <= 1)).all())
    if binary:
        return within
    return looks_like_probabilities(values) or (within and _error_of_sums(values).max() < ROUNDED)


def _error_of_sums(p: Floats) -> Floats:
    error: Floats = np.abs(p.sum(axis=1) - 1)
    return error


def _log(p: Floats) -> Logits:
    if not looks_like_probabilities(p):
        outside = ((p < 0) | ~np.isfinite(p)).any(axis=1)
        wrong = np.argwhere(outside if outside.any() else _error_of_sums(p) > LARGEST_ERROR)[0]
        row = p[(wrong[0], slice(None), *wrong[1:])]
        got = f"got {row} in row {wrong[0]}"
        if not outside.any():
            got += f" with a sum of {row.sum():.4g}"
        if _may_be_probabilities(p, False):
            got += ": they are rounded; save at least six digits"
        raise InputError(
            f"expected probabilities that sum to one in each row, {got}", setting="output_type"
        )
    with np.errstate(divide="ignore"):
        return floored(np.log(p))


def _logit(p: Floats) -> Logits:
    if not _may_be_probabilities(p, True):
        raise InputError(
            f"expected probabilities from 0 to 1, got {p.min()} to {p.max()}", setting="output_type"
        )
    p = np.clip(p, SIGMOID_EPS, 1 - SIGMOID_EPS)
    return binary_logits(np.log(p) - np.log1p(-p))


def check_class_names(ours: tuple[str, ...], theirs: tuple[str, ...]) -> None:
    """Refuse a second opinion whose classes have other names."""
    if not ours or not theirs or ours == theirs:
        return
    missing = [name for name in ours if name not in theirs]
    unknown = [name for name in theirs if name not in ours]
    wrong = "has the classes of the model in another order"
    if missing and unknown:
        wrong = f"has the class {unknown[0]!r}, and not the class {missing[0]!r} of the model"
    elif missing:
        wrong = f"has no class {missing[0]!r}, which the model has"
    elif unknown:
        wrong = f"has the class {unknown[0]!r}, which the model has not"
    raise InputError(
        f"the second opinion {wrong}: use a second opinion with the classes of the model"
    )
